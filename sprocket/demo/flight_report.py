"""The page that the demo writes: checks first, then charts."""

from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import Final

from matplotlib.ticker import FuncFormatter

from spark.report.charts import Series, bar_chart, heat_map, line_chart, stacked_chart
from spark.report.html_report import Chart, Page, Table
from sprocket.demo.analysis import Findings
from sprocket.demo.sending import Sent
from sprocket.demo.verdict import Check

_MIN_FLIGHTS_IN_A_CELL: Final = 10
_CLOCK: Final = FuncFormatter(lambda minute, _: f"{int(minute) // 60:02}:{int(minute) % 60:02}")


def flight_page(findings: Findings, sent: Sent, checks: Sequence[Check], facts: dict[str, str]) -> Page:
    """The report of one run."""
    page = Page(
        "New York flights 2013, through Sprocket and Spark",
        f"{len(sent.acknowledged):,} messages through two brokers; one was killed half way; "
        "read by Spark from the brokers' CommitLog files.",
        facts,
    )
    rows = [(check.what, check.found, check.holds) for check in checks]
    page.sections.append(
        Table(
            "Checks",
            "Counts of the producer, of both CommitLogs and of the consumers, reconciled.",
            ("Check", "Found", "Holds"),
            rows,
        )
    )
    page.sections += [
        _delay_heat_map(findings),
        _delay_bars(findings),
        _stored_chart(findings, sent),
        _scheduled_chart(findings),
        _latency_table(findings),
        _latency_chart(findings, sent),
    ]
    return page


def _delay_heat_map(findings: Findings) -> Chart:
    late: defaultdict[tuple[str, int], float] = defaultdict(float)
    departed: Counter[tuple[str, int]] = Counter()
    for delay in findings.delays:
        late[delay.carrier, delay.hour] += delay.late_minutes or 0
        departed[delay.carrier, delay.hour] += delay.departed
    shown = sorted(cell for cell, count in departed.items() if count >= _MIN_FLIGHTS_IN_A_CELL)
    hours = sorted({hour for _, hour in shown})
    return heat_map(
        "Departure delay by carrier and hour",
        "Average minutes late at departure. Delays pile up over the day; blue is early. "
        f"Cells with fewer than {_MIN_FLIGHTS_IN_A_CELL} departures are left empty.",
        sorted({carrier for carrier, _ in shown}),
        [f"{hour:02}" for hour in hours],
        {(carrier, f"{hour:02}"): late[carrier, hour] / departed[carrier, hour] for carrier, hour in shown},
        x_label="hour of the scheduled departure",
        color_label="minutes late",
    )


def _delay_bars(findings: Findings) -> Chart:
    late: defaultdict[str, float] = defaultdict(float)
    departed: Counter[str] = Counter()
    for delay in findings.delays:
        late[delay.carrier] += delay.late_minutes or 0
        departed[delay.carrier] += delay.departed
    average = {carrier: late[carrier] / max(departed[carrier], 1) for carrier in departed}
    carriers = sorted(average, key=lambda carrier: -average[carrier])
    return bar_chart(
        "Departure delay by carrier",
        "Average over the year; below each carrier, its departures.",
        carriers,
        [average[carrier] for carrier in carriers],
        y_label="minutes late",
        notes=[f"{departed[carrier]:,}" for carrier in carriers],
    )


def _stored_chart(findings: Findings, sent: Sent) -> Chart:
    first = min(second for _, second, _ in findings.stored_per_second)
    last = max(second for _, second, _ in findings.stored_per_second)
    by_broker: defaultdict[str, dict[int, int]] = defaultdict(dict)
    for broker, second, count in findings.stored_per_second:
        by_broker[broker][second] = count
    axis = range(first, last + 1)
    series = [
        Series(broker, [second - first for second in axis], [counts.get(second, 0) * 60 for second in axis])
        for broker, counts in sorted(by_broker.items())
    ]
    return stacked_chart(
        "Messages per minute as stored",
        "Store timestamps, counted by the second and scaled to a minute, one broker on top of the other. "
        "While one is down, the other takes what the producer sends.",
        series,
        x_label="seconds since the first message",
        y_label="messages per minute",
        marks=_marks(sent, first),
    )


def _scheduled_chart(findings: Findings) -> Chart:
    per_minute: Counter[int] = Counter()
    for delay in findings.delays:
        per_minute[delay.hour * 60 + delay.minute] += delay.flights
    axis = list(range(5 * 60, 24 * 60))
    return line_chart(
        "Messages per minute of the flights' day",
        "The same messages by the scheduled time of departure: flights of the year in each minute of the day. "
        "Airlines schedule at full hours and half hours.",
        [Series("flights", axis, [per_minute[minute] for minute in axis])],
        x_label="scheduled departure, local time",
        y_label="messages (whole year)",
        fill=True,
        x_format=_CLOCK,
        x_ticks=list(range(6 * 60, 24 * 60, 120)),
    )


def _latency_table(findings: Findings) -> Table:
    return Table(
        "End-to-end latency",
        "Milliseconds from the producer's call to the consumer, including the crash.",
        ("Consumer", "Messages", "p50", "p90", "p99", "p99.9", "Maximum"),
        [(each.consumer, each.messages, *(float(value) for value in each.quantiles)) for each in findings.latencies],
    )


def _latency_chart(findings: Findings, sent: Sent) -> Chart:
    first = findings.latency_over_time[0][0]
    seconds = [second - first for second, _, _ in findings.latency_over_time]
    return line_chart(
        "End-to-end latency over time",
        "By the second in which a message was sent; logarithmic. "
        "Messages that the killed broker held wait for its return.",
        [
            Series("p50", seconds, [max(median, 1.0) for _, median, _ in findings.latency_over_time]),
            Series("p99", seconds, [max(high, 1.0) for _, _, high in findings.latency_over_time]),
        ],
        x_label="seconds since the first message",
        y_label="milliseconds",
        marks=_marks(sent, first),
        logarithmic=True,
    )


def _marks(sent: Sent, first_second: int) -> dict[str, float]:
    if sent.killed is None:
        return {}
    killed = sent.killed_wall_ms / 1000 - first_second
    marks = {"SIGKILL broker-b": killed}
    if sent.recovery_s is not None:
        marks["broker-b accepts sends again"] = killed + sent.recovery_s
    return marks
