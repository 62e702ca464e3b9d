"""A run's folder: `config.yaml`, `metrics.parquet`, `checkpoints/`, `initialization/`, `plots/`."""

from __future__ import annotations

import io
import os
import queue
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import CancelledError, Future
from contextlib import contextmanager
from typing import Literal

import yaml

from rayctsl.config import Config, Overrides, apply_overrides, build_config, dump_config
from rayctsl.learning.engine import EngineFault
from rayctsl.learning.lease import Lease, LeaseLost, is_claimed, newest_epoch
from rayctsl.learning.metrics import Metrics
from rayctsl.learning.snapshot import (
    RunState,
    accepted_folders,
    latest_snapshot,
    snapshot_folder,
    snapshot_folders,
    step_of,
    write_snapshot,
)
from rayctsl.storage import Storage

CONFIG = "config.yaml"


Resume = Literal["never", "if_exists", "must"]  # how to open a folder that may have been begun


def claim_folder(base: str, marker: str, resume: Resume, kind: str = "a run folder") -> tuple[Storage, bool]:
    """A folder for new work, or one where it was begun (it has the file `marker`); which one is told.

    Args:
        kind: what the folder should have been, for the sentence that refuses it.
    """
    storage = Storage(base)
    if storage.local and os.path.isfile(storage.root):
        raise ValueError(f"{base} is a file, not a folder: choose another place")
    used = storage.names()
    begun = resume != "never" and storage.exists(marker)  # looked for last: it may come while others are listed
    if not begun and resume == "must":
        raise ValueError(f"{base} is not {kind}: it has no {marker}")
    if not begun and used:
        raise ValueError(f"{base} is already used; choose another --run-dir, or --resume {base} to continue it")
    return storage, begun


class RunFolder:
    """Opened with `open`, for a new run or for one that was begun."""

    def __init__(self, storage: Storage, config: Config, fresh: bool = False):
        self.storage, self.config, self._fresh = storage, config, fresh

    @classmethod
    def open(
        cls,
        base: str,
        config: Config | None = None,
        resume: Resume = "never",
        changes: Overrides | None = None,
    ) -> RunFolder:
        """The folder of a run: new, with the resolved config written into it, or begun, with its own config.

        Args:
            config: of a new run; a run that was begun keeps the one it has.
            changes: of a run that was begun, by dotted key; only its topology and its data root may change.
        """
        storage, begun = claim_folder(base, CONFIG, resume)
        if begun:
            raw = yaml.safe_load(storage.read(CONFIG))
            kept, changed = build_config(raw), build_config(apply_overrides(raw, changes or {}))
            root = {
                "data": changed.data.model_copy(update={"root": kept.data.root})
            }  # the checksums tell what lies there
            if changed.model_copy(update={"topology": kept.topology, **root}) != kept:
                raise ValueError(
                    "--resume continues a run with its own config; only its topology and its data root may change"
                )
            return cls(storage, changed)
        assert config is not None, "a new run needs a config"
        try:
            storage.write(CONFIG, dump_config(config).encode())
        except OSError as error:
            raise ValueError(f"cannot write to the run folder {base}: {error.strerror or error}") from None
        return cls(storage, config, fresh=True)

    @staticmethod
    def exists(base: str) -> bool:
        """Whether a run was begun in this folder."""
        return Storage(base).exists(CONFIG)

    def claim(self) -> Lease:
        """Become the one writer of this folder; what snapshots there are by now are taken over."""
        checkpoints = self.storage.inside("checkpoints")
        lease = self._lease().take()
        try:
            lease.begin_epoch(tuple(accepted_folders(checkpoints, newest_epoch(lease.storage))))
        except BaseException:
            lease.release()
            raise
        return lease

    def _lease(self) -> Lease:
        return Lease(self.storage.inside("checkpoints/lease"), f"the run in {self.storage}")

    def restore(self, lease: Lease | None = None) -> RunState | None:
        """The newest whole snapshot, or None; damaged newer ones are named on the way."""
        checkpoints = self.storage.inside("checkpoints")
        state, complaints = latest_snapshot(checkpoints, lease.epoch if lease else None)
        # Of step 0, as a kill in the first snapshot leaves it, nothing can be lost: the config says what was in it.
        if complaints and state is None and any(map(step_of, snapshot_folders(checkpoints))):
            raise ValueError(
                f"every snapshot in {self.storage} is damaged ({complaints[0]}); begin anew with --restart"
            )
        instead = f"using the one at step {state.step}" if state else "beginning anew"
        for complaint in complaints:
            print(f"warning: {complaint}; {instead}", file=sys.stderr, flush=True)
        return state

    @contextmanager
    def deleted_unless_begun(self) -> Iterator[None]:
        """Inside, a start that fails before there is anything to resume leaves no folder behind."""
        try:
            yield
        except BaseException:
            others = is_claimed(self.storage.inside("checkpoints/lease"))
            if self._fresh and not self.has_snapshots and not others:
                self.storage.delete_folder("")
            raise

    @property
    def has_snapshots(self) -> bool:
        """Whether there is something to resume from."""
        return bool(snapshot_folders(self.storage.inside("checkpoints")))

    def restart(self) -> None:
        """Forget what was computed, unless somebody writes here; the config stays.

        The lease stays too: its new epoch takes nothing over, so that what a former writer still writes never counts.
        """
        checkpoints = self.storage.inside("checkpoints")
        with self._lease():
            for folder in snapshot_folders(checkpoints):
                checkpoints.delete_folder(folder)

    def snapshot_address(self, step: int, lease: Lease) -> str:
        """Where the files of a snapshot at this step go."""
        return str(self.storage.inside(f"checkpoints/{snapshot_folder(step, lease)}"))

    def snapshot_writer(self, keep: int, lease: Lease | None = None) -> SnapshotWriter:
        return SnapshotWriter(self.storage.inside("checkpoints"), keep, lease)

    def plot(self, metrics: Metrics) -> None:
        """Task-average loss against cumulative inner steps, as plots/loss.png."""
        if not metrics.rows:
            return
        from rayctsl.plots import plot_losses

        sink = io.BytesIO()
        plot_losses(metrics.rows, metrics.curves, self.config, sink)
        self.storage.write("plots/loss.png", sink.getvalue())


class NotWritten(RuntimeError):
    """The storage does not take a snapshot: it is full, say. The run can be resumed when it does."""

    exit_code = 1


class SnapshotWriter:
    """Writes snapshots in a thread of its own, in order; what goes wrong there is raised by the next call."""

    def __init__(self, storage: Storage, keep: int, lease: Lease | None = None):
        self.storage, self.keep, self.lease = storage, keep, lease
        self.newest = 0  # inner step of the last one that was written whole
        self._queue: queue.Queue[Future[RunState] | None] = queue.Queue(maxsize=2)
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._work, name="snapshots", daemon=True)
        self._thread.start()

    def write(self, captured: Future[RunState]) -> None:
        """Write a state as soon as it has arrived; one that is lost on its way is left out."""
        self._raise()
        self._queue.put(captured)

    def flush(self) -> None:
        """Wait until everything handed in so far is written."""
        self._queue.join()
        self._raise()

    def close(self) -> None:
        """Write what was handed in, and end; what went wrong is raised."""
        self.stop()
        self._raise()

    def stop(self) -> None:
        """As `close`, but silent: something else went wrong before."""
        if self._thread.is_alive():
            self._queue.put(None)
            self._thread.join()

    def _work(self) -> None:
        while (captured := self._queue.get()) is not None:
            try:
                if self._error is None:
                    state = captured.result()
                    write_snapshot(self.storage, state, self.keep, self.lease)
                    self.newest = state.step
            except (EngineFault, CancelledError):
                pass  # lost on its way with who had it: the run goes back to an earlier one
            except BaseException as error:
                self._error = error
            finally:
                self._queue.task_done()

    def _raise(self) -> None:
        if isinstance(self._error, LeaseLost):
            raise self._error
        if self._error is not None:
            raise NotWritten(f"a snapshot could not be written: {self._error}") from self._error
