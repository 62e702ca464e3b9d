"""Values that come later, and a future whose value is there already, for code that can also wait."""

from __future__ import annotations

from concurrent.futures import Future
from typing import Protocol, TypeVar

Value = TypeVar("Value")
Coming = TypeVar("Coming", covariant=True)


class Later(Protocol[Coming]):
    """What can be waited for."""

    def result(self) -> Coming: ...


def finished(value: Value) -> Future[Value]:
    """The future of a value that is known."""
    future: Future[Value] = Future()
    future.set_result(value)
    return future
