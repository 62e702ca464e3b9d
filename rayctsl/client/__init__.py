"""A client of the service, and the command `python -m rayctsl.client`.

Uploads and downloads resume where they broke off, downloads are verified, and a job is followed by its events, across
interruptions.

Example: Client("http://127.0.0.1:8000").finetune("digits", steps=200)["id"]
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

import httpx

from rayctsl.client.connection import DEFAULT_URL, RETRIES, ServiceError, quoted, sha256_of
from rayctsl.client.sending import Sending, batches, packed
from rayctsl.contract import Json, JsonObject

__all__ = ["DEFAULT_URL", "ENDED", "Client", "ServiceError"]
ENDED = ("succeeded", "failed", "cancelled")
KINDS = {"ft-": "finetune", "cmp-": "comparisons"}


class Client(Sending):
    """All that a service does, as methods."""

    def initializations(self, **filters: str | int) -> Iterator[JsonObject]:
        """Every card, page by page. Example: client.initializations(method="reptile", sort="id")"""
        return self._pages("/initializations", filters)

    def initialization(self, identifier: str) -> JsonObject:
        return self._ask("GET", f"/initializations/{quoted(identifier)}").json()

    def datasets(self) -> list[JsonObject]:
        return self._ask("GET", "/datasets").json()["data"]

    def dataset(self, name: str) -> JsonObject:
        """Counts and classes, or how far its import is."""
        return self._ask("GET", f"/datasets/{quoted(name)}").json()

    def upload(
        self,
        name: str,
        source: str | Path,
        *,
        size: int | None = None,
        seed: int = 0,
        on_bytes: Callable[[int, int], None] | None = None,
        on_stage: Callable[[str], None] | None = None,
    ) -> JsonObject:
        """Send a folder of class folders, a zip, a tar or an npz, and wait until it is a dataset.

        Args:
            on_bytes: called with (bytes so far, bytes in all).
            on_stage: called with what the import is at.
        """
        with packed(Path(source)) as archive:
            self._send(name, archive, {"size": size, "seed": seed}, on_bytes)
        return self._imported(name, on_stage)

    def delete_dataset(self, name: str) -> None:
        self._ask("DELETE", f"/datasets/{quoted(name)}")

    def compare(self, dataset: str, initializations: Sequence[str], *, seeds: int = 3, **recipe: Json) -> JsonObject:
        """Ask for a comparison and return it as it begins.

        Args:
            recipe: as in the service's ComparisonRequest: steps, alpha, train_size, …
        """
        body = {"dataset": dataset, "initializations": list(initializations), "seeds": seeds, **recipe}
        return self._ask("POST", "/comparisons", json=body).json()

    def comparison(self, identifier: str) -> JsonObject:
        """The leaderboard as it stands, and the jobs."""
        return self._ask("GET", f"/comparisons/{quoted(identifier)}").json()

    def jobs(self, **filters: str | int) -> Iterator[JsonObject]:
        return self._pages("/finetune", filters)

    def job(self, identifier: str) -> JsonObject:
        return self._ask("GET", f"/finetune/{quoted(identifier)}").json()

    def cancel(self, identifier: str) -> JsonObject:
        return self._ask("POST", f"/finetune/{quoted(identifier)}/cancel").json()

    def delete(self, identifier: str) -> None:
        """A job, a comparison (its jobs too) or a published model; what has not ended must be cancelled first."""
        kind = next((kind for start, kind in KINDS.items() if identifier.startswith(start)), "models")
        self._ask("DELETE", f"/{kind}/{quoted(identifier)}")

    def delete_jobs(self, status: str, days: float = 0.0) -> list[str]:
        """Own jobs that ended so, so many days ago or more; returns their ids."""
        deleted: list[str] = []
        while True:
            some = self._ask("DELETE", "/finetune", params={"status": status, "days": days}).json()
            deleted += some["deleted"]
            if not some["has_more"]:
                return deleted

    def delete_weights(self, identifier: str) -> None:
        """A job's model alone."""
        self._ask("DELETE", f"/finetune/{quoted(identifier)}/weights")

    def publish(self, identifier: str, name: str) -> JsonObject:
        """Give a job's model a name, under which it stays when the job goes."""
        return self._ask("POST", f"/finetune/{quoted(identifier)}/publish", json={"name": name}).json()

    def models(self) -> list[JsonObject]:
        return self._ask("GET", "/models").json()["data"]

    def log(self, identifier: str) -> str:
        """What was said and printed while a job ran."""
        return self._ask("GET", f"/finetune/{quoted(identifier)}/log").text

    def finetune(self, dataset: str, *, idempotency_key: str | None = None, **options: Json) -> JsonObject:
        """Ask for a job and return it, queued; sending it again after a broken connection makes no second one.

        Args:
            options: as in the service's FinetuneRequest: initialization, steps, train_size, seed, …
        """
        key = idempotency_key or os.urandom(16).hex()
        headers = {"Idempotency-Key": key}
        return self._ask("POST", "/finetune", json={"dataset": dataset, **options}, headers=headers, retry=True).json()

    def predict(self, identifier: str, image: str | Path | bytes) -> list[JsonObject]:
        """Class names with probabilities, likeliest first."""
        content = image if isinstance(image, bytes) else Path(image).read_bytes()
        headers = {"Content-Type": "application/octet-stream"}
        path = f"/finetune/{quoted(identifier)}/predict"
        return self._ask("POST", path, content=content, headers=headers).json()["classes"]

    def predict_many(self, identifier: str, images: Iterable[str | Path]) -> Iterator[JsonObject]:
        """For every file its `name`, and `classes` or the `error`; sent so many at a time."""
        path = f"/finetune/{quoted(identifier)}/predictions"
        for batch in batches(images):
            form = [("image", (str(file), file.read_bytes(), "application/octet-stream")) for file in batch]
            rows = self._ask("POST", path, files=form, timeout=300.0).json()["data"]
            yield from ({**row, "name": str(file)} for file, row in zip(batch, rows, strict=True))

    def download(
        self, identifier: str, target: str | Path | None = None, on_bytes: Callable[[int, int], None] | None = None
    ) -> Path:
        """Fetch an initialization's weights, or a job's by its id or alias; resumed and verified.

        Args:
            target: a file, or a folder to put `<id>.safetensors` in; default the current folder.
            on_bytes: called with (bytes so far, bytes in all).
        """
        kind = "finetune" if identifier.startswith(("ft-", "latest@", "best@")) else "initializations"
        final = Path(target or ".")
        final = final / f"{Path(identifier).name}.safetensors" if final.is_dir() else final
        partial = final.with_name(final.name + ".part")
        for attempt in range(RETRIES):
            try:
                checksum = self._fetch(f"/{kind}/{quoted(identifier)}/weights", partial, on_bytes)
                break
            except httpx.TransportError as error:
                if attempt == RETRIES - 1:
                    raise ServiceError(f"the download broke off: {error}; run it again to go on") from None
                time.sleep(0.5 * 2**attempt)
        if (found := sha256_of(partial)) != checksum:
            partial.unlink()
            raise ServiceError(f"the download is damaged: its sha256 is {found}, the service says {checksum}")
        os.replace(partial, final)
        return final

    def events(self, identifier: str) -> Iterator[JsonObject]:
        """A job's events up to its end, each with `event`; taken up again where a connection broke."""
        seen, failures = 0, 0
        while True:
            try:
                for name, number, data in self._stream(f"/finetune/{quoted(identifier)}/events", seen):
                    seen, failures = max(seen, number), 0
                    yield {"event": name, **data}
                    if name == "end":
                        return
            except httpx.TransportError as error:
                failures += 1
                if failures > RETRIES:
                    raise ServiceError(f"the connection to {self.url} is lost: {error}") from None
            time.sleep(min(5.0, 0.5 * 2**failures))

    def wait(self, identifier: str, on_event: Callable[[JsonObject], None] | None = None) -> JsonObject:
        """Follow a job to its end and return it."""
        for event in self.events(identifier):
            if on_event:
                on_event(event)
        return self.job(identifier)
