"""Metrics as the parts of a server declare them: name, kind, unit, labels, meaning, and the way to read them.

Nothing is counted for an export: `read` looks at what the part has anyway, when an exporter asks.
Source of the model: RocketMQ 5.3.3, whose metrics are those of OpenTelemetry.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum

from sprocket.metrics.distribution import Distribution, Labels

Value = float | Distribution
# The values now, by the values of the labels.
Read = Callable[[], Iterable[tuple[Labels, Value]]]


class Kind(Enum):
    """Kind of a metric; the value is the name of Prometheus."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric.  `read` returns its values in the event loop's thread, one for each combination of labels.

    A label with the empty text is left out of a series.  `is_still`: the values only change by another preparation, so
    they may be read over several turns of the loop.
    """

    name: str
    kind: Kind
    says: str
    read: Read
    labels: Labels = ()
    unit: str = ""
    is_still: bool = False


@dataclass(frozen=True, slots=True)
class Reading:
    """Values of one metric at one time; the labels include those of the server."""

    name: str
    kind: Kind
    says: str
    unit: str
    points: list[tuple[Mapping[str, str], Value]]


def gauge(name: str, says: str, read: Callable[[], float], unit: str = "") -> Metric:
    """Return a gauge without labels."""
    return Metric(name, Kind.GAUGE, says, lambda: [((), read())], unit=unit)


def text(value: bool) -> str:
    """Return a boolean label's value."""
    return "true" if value else "false"
