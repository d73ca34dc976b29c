"""Histograms that cost little to fill: counts by bucket, kept by labels."""

from bisect import bisect_left
from collections.abc import Iterable, Sequence

Labels = tuple[str, ...]


class Distribution:
    """Counts of values by bucket.  A value belongs to the first bucket whose boundary is not below it."""

    __slots__ = ("boundaries", "count", "counts", "total")

    def __init__(self, boundaries: Sequence[float]) -> None:
        self.boundaries = boundaries
        self.counts = [0] * (len(boundaries) + 1)
        self.count = 0
        self.total: float = 0

    def add(self, value: float, times: int = 1) -> None:
        """Count a value."""
        self.counts[bisect_left(self.boundaries, value)] += times
        self.count += times
        self.total += value * times

    def add_all(self, values: Sequence[int]) -> None:
        """Count many values; cheap if all belong to the first bucket."""
        if max(values) <= self.boundaries[0]:
            self.counts[0] += len(values)
        else:
            boundaries, counts = self.boundaries, self.counts
            for value in values:
                counts[bisect_left(boundaries, value)] += 1
        self.count += len(values)
        self.total += sum(values)

    def plus(self, other: "Distribution") -> "Distribution":
        """Return the sum of two distributions with the same boundaries."""
        return self._combined(other, 1)

    def minus(self, other: "Distribution") -> "Distribution":
        """Return what was added since `other`, an earlier copy of this."""
        return self._combined(other, -1)

    def copy(self) -> "Distribution":
        """Return a copy that does not change."""
        return self._combined(Distribution(self.boundaries), 1)

    def _combined(self, other: "Distribution", sign: int) -> "Distribution":
        result = Distribution(self.boundaries)
        result.counts = [own + sign * more for own, more in zip(self.counts, other.counts, strict=True)]
        result.count = self.count + sign * other.count
        result.total = self.total + sign * other.total
        return result


class Distributions:
    """One distribution for each combination of labels."""

    def __init__(self, boundaries: Sequence[float]) -> None:
        self._boundaries = boundaries
        self._by_labels: dict[Labels, Distribution] = {}

    def add(self, labels: Labels, value: float, times: int = 1) -> None:
        """Count a value."""
        self.of(labels).add(value, times)

    def of(self, labels: Labels) -> Distribution:
        """Return the distribution of `labels`."""
        found = self._by_labels.get(labels)
        if found is None:
            found = self._by_labels[labels] = Distribution(self._boundaries)
        return found

    def read(self) -> Iterable[tuple[Labels, Distribution]]:
        """Return all distributions with their labels."""
        return self._by_labels.items()
