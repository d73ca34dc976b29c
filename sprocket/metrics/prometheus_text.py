"""Metrics in the text format that Prometheus reads, named as the exporter of Apache RocketMQ names them.

Source: Prometheus, "Text-based format", version 0.0.4; OpenTelemetry for Java 1.29, `PrometheusMetricNameMapper`,
`PrometheusUnitsHelper`, which RocketMQ 5.3.3 uses.
"""

import re
from collections.abc import Generator, Mapping
from functools import cache
from typing import Final

from sprocket.metrics.declared import Kind, Reading, Value
from sprocket.metrics.distribution import Distribution

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
# Points that one step renders.
_STEP_POINTS: Final = 128
_NOT_IN_NAMES: Final = re.compile("[^a-zA-Z0-9_:]")
_NOT_IN_LABELS: Final = re.compile("[^a-zA-Z0-9_]")
_ESCAPES: Final = str.maketrans({"\\": r"\\", "\n": r"\n", '"': r"\""})
_UNITS: Final = {"ms": "milliseconds", "us": "microseconds", "s": "seconds", "By": "bytes"}


def exported_name(name: str, kind: Kind, unit: str) -> str:
    """Return the name under which Prometheus gets a metric."""
    name = _NOT_IN_NAMES.sub("_", name)
    suffix = _UNITS.get(unit, unit)
    if suffix and suffix not in name:
        name = f"{name}_{suffix}"
    if kind is Kind.COUNTER and "total" not in name:
        name = f"{name}_total"
    return name


def rendered(reading: Reading) -> Generator[None, None, bytes]:
    """Return a metric's part of the page for Prometheus, in steps; that of a metric without values is empty.

    The points are removed from the reading: to free all of them at once would hold the event loop.
    """
    if not reading.points:
        return b""
    name, points = exported_name(reading.name, reading.kind, reading.unit), reading.points
    lines, pieces = [f"# HELP {name} {reading.says}", f"# TYPE {name} {reading.kind.value}"], []
    points.reverse()
    while points:
        for labels, value in reversed(points[-_STEP_POINTS:]):
            lines += _samples(name, labels, value)
        del points[-_STEP_POINTS:]
        pieces.append("\n".join([*lines, ""]).encode("utf-8", "replace"))
        lines = []
        yield
    return b"".join(pieces)


@cache
def _label(name: str) -> str:
    return _NOT_IN_LABELS.sub("_", name)


def _samples(name: str, labels: Mapping[str, str], value: Value) -> list[str]:
    text = ",".join([f'{_label(key)}="{one.translate(_ESCAPES)}"' for key, one in sorted(labels.items())])
    if not isinstance(value, Distribution):
        return [f"{name}{{{text}}} {_number(value)}"]
    lines, below = [], 0
    comma = "," if text else ""
    for boundary, count in zip((*map(_number, value.boundaries), "+Inf"), value.counts, strict=True):
        below += count
        lines.append(f'{name}_bucket{{{text}{comma}le="{boundary}"}} {below}')
    return [*lines, f"{name}_count{{{text}}} {value.count}", f"{name}_sum{{{text}}} {_number(value.total)}"]


def _number(value: float) -> str:
    return repr(float(value))
