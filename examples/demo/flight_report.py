"""The page that the demo writes: checks first, then charts."""

from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from examples.demo.analysis import Findings
from examples.demo.flight_charts import Series, heat_map, line_chart, stacked_chart
from examples.demo.flights import carrier_names
from examples.demo.sending import Sent
from examples.demo.verdict import Check
from spark.report.charts import bar_chart
from spark.report.html_report import Chart, Page, Part, Table

_MIN_FLIGHTS_IN_A_CELL: Final = 10


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
        _counts_table(findings, sent),
        _delay_heat_map(findings),
        _delay_bars(findings),
        _stored_chart(findings, sent),
        _hours_chart(findings),
        _latency_table(findings),
        _latency_chart(findings, sent),
    ]
    return page


def write_page(page: Page, directory: Path) -> Path:
    """Write ``report.html`` and, beside it, each chart as an SVG.  Return the path of the page."""
    directory.mkdir(parents=True, exist_ok=True)
    for section in page.sections:
        if isinstance(section, Chart):
            (directory / f"{Part(section.title).anchor}.svg").write_bytes(section.wide)
    path = directory / "report.html"
    page.save(path)
    return path


def _counts_table(findings: Findings, sent: Sent) -> Table:
    counts = findings.counts
    copies = counts.records - counts.distinct_in_log
    return Table(
        "What each count counts",
        "A flight is one message. It can be stored twice, and delivered more than once.",
        ("Count", "Number", "Meaning"),
        [
            ("Sends acknowledged", len(sent.acknowledged), "One per flight, however often the producer tried."),
            ("Messages stored", counts.records, "Records in both logs."),
            ("Second copies", copies, "Messages stored again: the killed broker stored one but did not answer."),
            ("Deliveries", counts.received, "Messages that both consumers received, repeated ones included."),
            (
                "Repeated deliveries",
                counts.received - counts.distinct_received,
                "Deliveries of a flight received before: second copies, and redeliveries after the crash.",
            ),
        ],
    )


def _delay_heat_map(findings: Findings) -> Chart:
    late: defaultdict[tuple[str, int], float] = defaultdict(float)
    departed: Counter[tuple[str, int]] = Counter()
    for delay in findings.delays:
        late[delay.carrier, delay.hour] += delay.late_minutes or 0
        departed[delay.carrier, delay.hour] += delay.departed
    names = carrier_names()
    shown = sorted(cell for cell, count in departed.items() if count >= _MIN_FLIGHTS_IN_A_CELL)
    hours = sorted({hour for _, hour in shown})
    return heat_map(
        "Departure delay by carrier and hour",
        "Average minutes late at departure. Delays pile up over the day; blue is early. "
        f"Cells with fewer than {_MIN_FLIGHTS_IN_A_CELL} departures are left empty.",
        sorted({names[carrier] for carrier, _ in shown}),
        [f"{hour:02}" for hour in hours],
        {(names[carrier], f"{hour:02}"): late[carrier, hour] / departed[carrier, hour] for carrier, hour in shown},
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
    names = carrier_names()
    return bar_chart(
        "Departure delay by carrier",
        "Average over the year; in brackets, the departures.",
        [names[carrier] for carrier in carriers],
        [average[carrier] for carrier in carriers],
        x_label="minutes late",
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


def _hours_chart(findings: Findings) -> Chart:
    per_hour: Counter[int] = Counter()
    for delay in findings.delays:
        per_hour[delay.hour] += delay.flights
    hours = range(min(per_hour), max(per_hour) + 1)
    return bar_chart(
        "Flights by hour of departure",
        "The same messages by the hour of the scheduled departure: flights of the year in each hour of the day.",
        [f"{hour:02}:00" for hour in hours],
        [per_hour[hour] for hour in hours],
        x_label="flights (whole year)",
        y_label="scheduled departure, local time",
        value_text="{:,.0f}".format,
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
