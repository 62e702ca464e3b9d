"""One writer per folder, on local disks and object stores alike: a lease, and a fence for who loses it.

Whoever wants to write puts a claim of its own into the folder and draws a ticket, as in Lamport's bakery: files that
are written whole and listed consistently are all that it takes. The smallest living ticket holds the lease; a claim
lives as long as it changes. The holder's ticket is its epoch, recorded with what it takes over from earlier ones.
Snapshots carry the epoch of their writer, so what a former holder writes after losing the lease, however late, counts
for nothing.
"""

from __future__ import annotations

import os
import socket
import threading
import time
import uuid
from types import TracebackType

from rayctsl.contract import Contract, read_contract
from rayctsl.storage import Storage

REFRESH_SECONDS = 2.0
LEASE_SECONDS = 15.0  # without a change after which a claim is dead
CLAIM, EPOCH = "claim-", "epoch-"


class InUse(ValueError):
    """Somebody else writes here."""


class LeaseLost(RuntimeError):
    """Somebody else has taken over, because this process did not answer for a while."""

    exit_code = 1


class Claim(Contract):
    """A process that wants to write. Example: Claim(owner="3f2a", where="node-1", process=4711, ticket=3, beats=17)"""

    owner: str
    where: str
    """The host and its process numbers' name space."""
    process: int
    ticket: int
    """0 while it is being drawn."""
    beats: int
    """Grows as long as the process lives."""


class Epoch(Contract):
    """A holder of the lease, and what it has taken over.

    Example: Epoch(number=3, inherited=("step-000000500-000002",))
    """

    number: int
    inherited: tuple[str, ...] = ()


def newest_epoch(storage: Storage) -> Epoch | None:
    """The last one that held the lease; None when nobody ever did."""
    names = _files(storage, EPOCH)
    return read_contract(Epoch, storage.read(names[-1]), names[-1]) if names else None


def is_claimed(storage: Storage) -> bool:
    """Whether anybody has the lease or waits for it, alive or not."""
    return any(name.startswith(CLAIM) for name in storage.names())


class Lease:
    """Held from `take` to `release`, or as a context.

    Example: with Lease(storage.inside("lease"), "the sweep in runs/s1"): ...
    """

    def __init__(self, storage: Storage, what: str, refresh: float = REFRESH_SECONDS, limit: float = LEASE_SECONDS):
        self.storage, self.what, self._refresh, self._limit = storage, what, refresh, limit
        self.epoch = Epoch(number=0)
        self._owner = uuid.uuid4().hex[:12]
        self._claim = Claim(owner=self._owner, where=_where(), process=os.getpid(), ticket=0, beats=0)
        self._stop = threading.Event()
        self._lost = False
        self._thread: threading.Thread | None = None
        self._confirmed = 0.0

    def take(self) -> Lease:
        """Become the writer; `InUse` says who is."""
        self._put(ticket=0)
        try:
            newest = newest_epoch(self.storage)
            taken = [claim.ticket for claim in self._others()]
            self._put(ticket=1 + max([newest.number if newest else 0, *taken]))
            self._yield_to_others()
        except BaseException:
            self._withdraw()
            raise
        self.epoch = Epoch(number=self._claim.ticket)
        self._confirmed = time.monotonic()
        self._thread = threading.Thread(target=self._keep, name="lease", daemon=True)
        self._thread.start()
        return self

    def begin_epoch(self, inherited: tuple[str, ...] = ()) -> None:
        """Record what of earlier epochs counts from now on: nothing that they write later does."""
        self.check()
        newest = newest_epoch(self.storage)
        if newest is not None and newest.number >= self._claim.ticket:  # somebody held this process for dead
            self.release()
            raise InUse(f"{self.what} has just been taken by another process; wait for its end, or stop it")
        self.epoch = Epoch(number=self._claim.ticket, inherited=inherited)
        self.storage.write(f"{EPOCH}{self.epoch.number:06d}.json", self.epoch.to_bytes())

    def check(self) -> None:
        """Before every commit: still the holder?"""
        if not self._lost and time.monotonic() - self._confirmed > self._limit / 2:
            self._confirm()
        if self._lost:
            raise LeaseLost(f"another process has taken over {self.what}; this one stops writing")

    def release(self) -> None:
        self._stop.set()
        if self._thread is not None:
            self._thread.join()
        self._withdraw()

    def __enter__(self) -> Lease:
        self.take().begin_epoch()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()

    def _keep(self) -> None:
        while not self._lost and not self._stop.wait(self._refresh):
            try:
                self._confirm()
            except OSError:
                continue  # the storage is away for a moment; `check` looks again

    def _confirm(self) -> None:
        started = time.monotonic()
        newest = newest_epoch(self.storage)
        if newest is not None and newest.number > self._claim.ticket:
            self._lost = True
            return
        self._put(ticket=self._claim.ticket)
        self._confirmed = started

    def _put(self, ticket: int) -> None:
        self._claim = self._claim.changed(ticket=ticket, beats=self._claim.beats + 1)
        self.storage.write(f"{CLAIM}{self._owner}.json", self._claim.to_bytes())

    def _withdraw(self) -> None:
        self.storage.delete(f"{CLAIM}{self._owner}.json")

    def _others(self) -> list[Claim]:
        claims = []
        for name in _files(self.storage, CLAIM):
            if name != f"{CLAIM}{self._owner}.json":
                try:
                    claims.append(read_contract(Claim, self.storage.read(name), name))
                except FileNotFoundError:
                    continue  # withdrawn meanwhile
        return claims

    def _yield_to_others(self) -> None:
        """Return when no living claim comes before this one; give up when one does."""
        seen = {claim.owner: claim for claim in self._others()}
        since, pause, last_beat = time.monotonic(), 0.02, time.monotonic()
        while seen:
            waited = time.monotonic() - since
            present = {claim.owner: claim for claim in self._others()}
            for owner, first in list(seen.items()):
                now = present.get(owner)
                if now is None or _is_dead(now) or (now == first and waited > self._limit):
                    self.storage.delete(f"{CLAIM}{owner}.json")
                    del seen[owner]
                elif now.ticket and (now.ticket, owner) > (self._claim.ticket, self._owner):
                    del seen[owner]  # it comes after this one, and will see that
                elif now.ticket and (first.ticket == 0 or now.beats > first.beats):
                    raise InUse(
                        f"{self.what} is being written by process {now.process} on {now.where.split()[0]}; "
                        "wait for its end, or stop it"
                    )
            if time.monotonic() - last_beat > self._refresh:
                self._put(ticket=self._claim.ticket)
                last_beat = time.monotonic()
            time.sleep(pause)
            pause = min(2 * pause, 0.2)


def _files(storage: Storage, kind: str) -> list[str]:
    """Whole files; on a disk, one that is being written lies beside it under a name of its own."""
    return [name for name in storage.names() if name.startswith(kind) and name.endswith(".json")]


def _where() -> str:
    """The host, and which processes its numbers mean."""
    try:
        with open("/proc/sys/kernel/random/boot_id") as boot:
            return f"{socket.gethostname()} {boot.read().strip()[:13]} {os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return f"{socket.gethostname()} {uuid.getnode():x}"


def _is_dead(claim: Claim) -> bool:
    """Whether a claim's process is known to be gone: only a process of this host can be asked for."""
    if claim.where != _where():
        return False
    try:
        os.kill(claim.process, 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        return False
    return False
