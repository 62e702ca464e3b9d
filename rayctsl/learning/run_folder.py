"""A run's folder: `config.yaml`, `metrics.parquet`, `checkpoints/`, `initialization/`, `plots/`."""

from __future__ import annotations

import io
import queue
import threading
from concurrent.futures import Future

import yaml

from rayctsl.config import Config, build_config, dump_config
from rayctsl.learning.metrics import Metrics
from rayctsl.learning.snapshot import RunState, latest_snapshot, write_snapshot
from rayctsl.storage import Storage

CONFIG = "config.yaml"


class RunFolder:
    """Opened with `create` for a new run or `resume` for one that was begun."""

    def __init__(self, storage: Storage, config: Config):
        self.storage, self.config = storage, config

    @classmethod
    def create(cls, base: str, config: Config) -> RunFolder:
        """Claim an empty or missing folder and write the resolved config into it."""
        storage = Storage(base)
        if storage.names():
            raise ValueError(f"{base} is already used; choose another --run-dir, or --resume {base} to continue it")
        try:
            storage.write(CONFIG, dump_config(config).encode())
        except OSError as error:
            raise ValueError(f"cannot write to the run folder {base}: {error.strerror or error}") from None
        return cls(storage, config)

    @staticmethod
    def exists(base: str) -> bool:
        """Whether a run was begun in this folder."""
        return Storage(base).exists(CONFIG)

    @classmethod
    def resume(cls, base: str) -> RunFolder:
        """Open the folder of an earlier run; its own config is used."""
        storage = Storage(base)
        try:
            raw = yaml.safe_load(storage.read(CONFIG))
        except FileNotFoundError:
            raise ValueError(f"{base} is not a run folder: it has no {CONFIG}") from None
        return cls(storage, build_config(raw))

    def restore(self) -> RunState | None:
        """The newest whole snapshot, or None; damaged newer ones are named on the way."""
        state, complaints = latest_snapshot(self.storage.inside("checkpoints"))
        for complaint in complaints:
            used = f"using the one at step {state.step}" if state else "starting from the beginning"
            print(f"warning: {complaint}; {used}", flush=True)
        return state

    def snapshot_writer(self, keep: int) -> SnapshotWriter:
        return SnapshotWriter(self.storage.inside("checkpoints"), keep)

    def plot(self, metrics: Metrics) -> None:
        """Task-average loss against cumulative inner steps, as plots/loss.png."""
        if not metrics.rows:
            return
        from rayctsl.plots import plot_losses

        sink = io.BytesIO()
        plot_losses(metrics.rows, self.config, sink)
        self.storage.write("plots/loss.png", sink.getvalue())


class SnapshotWriter:
    """Writes snapshots in a thread of its own, in order; what goes wrong there is raised by the next call."""

    def __init__(self, storage: Storage, keep: int):
        self.storage, self.keep = storage, keep
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
        self._queue.put(None)
        self._thread.join()
        self._raise()

    def _work(self) -> None:
        while (captured := self._queue.get()) is not None:
            try:
                if self._error is None and captured.exception() is None:
                    write_snapshot(self.storage, captured.result(), self.keep)
            except BaseException as error:
                self._error = error
            finally:
                self._queue.task_done()

    def _raise(self) -> None:
        if self._error is not None:
            raise RuntimeError(f"a snapshot could not be written: {self._error}") from self._error
