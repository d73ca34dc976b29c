"""Pages of a long list.  Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

T = TypeVar("T")


@dataclass(frozen=True)
class Slice(Generic[T]):
    """Part of a list: `number` counts from 1."""

    items: Sequence[T]
    number: int
    count: int
    total: int

    @property
    def before(self) -> int | None:
        """Number of the part before, None for the first."""
        return self.number - 1 if self.number > 1 else None

    @property
    def after(self) -> int | None:
        """Number of the part after, None for the last."""
        return self.number + 1 if self.number < self.count else None


def slice_of(items: Sequence[T], number: int, length: int) -> Slice[T]:
    """Return part `number` of `items`; the nearest one if there is no such part."""
    count = max(1, -(-len(items) // length))
    number = min(max(1, number), count)
    return Slice(items[(number - 1) * length : number * length], number, count, len(items))
