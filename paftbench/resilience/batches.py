"""Batches of a loader without end, from a place in it."""

from collections.abc import Iterable, Iterator
from typing import Any

from paftbench.errors import Refused


class Batches:
    """Reads a loader over and over, its first `skipped` batches at once, for nobody; one without any is refused."""

    def __init__(self, loader: Iterable[Any], *, skipped: int = 0) -> None:
        self._loader = loader
        self._iterator = iter(loader)
        for _ in range(skipped):
            next(self)

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        for _ in range(2):
            try:
                return next(self._iterator)
            except StopIteration:
                self._iterator = iter(self._loader)
        raise Refused("loader has no batch, so no step can be made")
