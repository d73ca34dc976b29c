"""Line charts as figures for an SVG template.  Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

WIDTH: Final = 720
HEIGHT: Final = 220
LEFT, RIGHT, TOP, BOTTOM = 56, 12, 12, 28
MAX_SERIES: Final = 6
_TICKS: Final = 4
# Minutes of charts: the shortest that has room for all points.
_SPANS: Final = (4, 12, 60)
_COLUMNS: Final = 4

# (time in ms, value); None leaves a gap.
Series = Sequence[tuple[int, float | None]]


@dataclass(frozen=True)
class Line:
    """One line: its name, the number of its colour, its parts as points of polylines, and its last value."""

    name: str
    colour: int
    parts: tuple[str, ...]
    dots: tuple[tuple[float, float], ...]
    last: float | None


@dataclass(frozen=True)
class Chart:
    """A chart; `rows` and `columns` are the ticks as (position, text)."""

    title: str
    unit: str
    lines: tuple[Line, ...]
    rows: tuple[tuple[float, str], ...]
    columns: tuple[tuple[float, str], ...]
    left_out: int
    span: str
    width: int = WIDTH
    height: int = HEIGHT

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to draw."""
        return not any(line.parts or line.dots for line in self.lines)


def chart(title: str, unit: str, series: Mapping[str, Series], begin_ms: int, end_ms: int, max_gap_ms: int) -> Chart:
    """Return the chart of `series` from `begin_ms` to `end_ms`; a longer gap than `max_gap_ms` interrupts a line.

    At most `MAX_SERIES` series are drawn, those with the highest last values.
    """
    ordered = sorted(series, key=lambda name: (-(_last(series[name]) or 0.0), name))
    drawn = sorted(ordered[:MAX_SERIES])
    values = [
        value for name in drawn for time, value in series[name] if value is not None and begin_ms <= time <= end_ms
    ]
    top = nice_top(max(values, default=0.0))
    span_ms = max(1, end_ms - begin_ms)

    def place(time: int, value: float) -> tuple[float, float]:
        x = LEFT + (time - begin_ms) / span_ms * (WIDTH - LEFT - RIGHT)
        y = HEIGHT - BOTTOM - value / top * (HEIGHT - TOP - BOTTOM)
        return round(x, 1), round(y, 1)

    lines = []
    for colour, name in enumerate(drawn):
        parts = _parts([one for one in series[name] if begin_ms <= one[0] <= end_ms], max_gap_ms)
        placed = [[place(*point) for point in part] for part in parts]
        lines.append(
            Line(
                name,
                colour,
                tuple(" ".join(f"{x},{y}" for x, y in part) for part in placed if len(part) > 1),
                tuple(part[0] for part in placed if len(part) == 1),
                _last(series[name]),
            )
        )
    rows = tuple((place(begin_ms, top * tick / _TICKS)[1], short(top * tick / _TICKS)) for tick in range(_TICKS + 1))
    columns = tuple(
        (
            place(end_ms - span_ms * part // _COLUMNS, 0)[0],
            f"-{span_ms * part // _COLUMNS // 60_000} min" if part else "now",
        )
        for part in range(_COLUMNS, -1, -1)
    )
    return Chart(
        title, unit, tuple(lines), rows, columns, max(0, len(ordered) - MAX_SERIES), span_words(begin_ms, end_ms)
    )


def span_words(begin_ms: int, end_ms: int) -> str:
    """Return how long charts are: last 4 minutes, last hour."""
    minutes = round((end_ms - begin_ms) / 60_000)
    return "last hour" if minutes == _SPANS[-1] else f"last {minutes} minutes"


def begin_of(first_ms: int, now_ms: int) -> int:
    """Return where charts begin whose first point is at `first_ms`."""
    spans = (minutes * 60_000 for minutes in _SPANS)
    return now_ms - next((span for span in spans if now_ms - first_ms <= span), _SPANS[-1] * 60_000)


def nice_top(value: float) -> float:
    """Return the lowest of 1, 2, 4 or 10 times a power of ten that is at least `value`; 1 for no value."""
    if value <= 0:
        return 1.0
    power = 10.0**-6
    while power * 10 < value:
        power *= 10
    return next(step * power for step in (1, 2, 4, 10) if step * power >= value * 0.999999)


def short(value: float) -> str:
    """Return a number in few characters: 1.5k, 2M, 0.25."""
    for limit, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= limit:
            return f"{value / limit:.3g}{letter}"
    return f"{value:.3g}"


def _parts(points: Series, max_gap_ms: int) -> list[list[tuple[int, float]]]:
    parts: list[list[tuple[int, float]]] = []
    before: int | None = None
    for time, value in points:
        if value is None:
            before = None
            continue
        if before is None or time - before > max_gap_ms:
            parts.append([])
        parts[-1].append((time, value))
        before = time
    return parts


def _last(points: Series) -> float | None:
    return points[-1][1] if points else None
