"""Part of the page about traffic: numbers, sizes, latency, tags and keys."""

from collections.abc import Sequence
from typing import Final

from spark.report.charts import REST_COLOR, Steps, Times, bar_chart, timeline_bars, timeline_lines
from spark.report.findings import Findings, HotValues, Latency, TopicTotals
from spark.report.html_report import Chart, Table
from spark.report.survey import REST
from spark.report.texts import bytes_text, count_text, duration_text, one_step, size_class, step_text, utc
from spark.report.topic_kinds import TopicKind

LISTED: Final = 20
LATENCY_COLUMNS: Final = ("Messages", "p50 ms", "p90 ms", "p99 ms", "p99.9 ms", "Largest ms")


def summary(findings: Findings) -> list[Chart | Table]:
    """Return totals by topic and, if there are several brokers, by broker."""
    sections: list[Chart | Table] = [_topic_table(findings)]
    if len(findings.brokers) > 1:
        rows = [
            (each.broker, each.messages, bytes_text(each.store_bytes), utc(each.first_ms), utc(each.last_ms))
            for each in findings.brokers
        ]
        sections.append(
            Table(
                "Brokers",
                "Records in the log of each broker. A master and its slave hold the same: name only one of them.",
                ("Broker", "Messages", "Records", "First stored", "Last stored"),
                rows,
                bars="Messages",
            )
        )
    return sections


def _topic_table(findings: Findings) -> Table:
    shown, others = findings.topics[:LISTED], findings.topics[LISTED:]
    rows = [_topic_row(each) for each in shown]
    if others:
        rows.append(_sum_row(f"{len(others):,} smaller topics", others))
    rows.append(_sum_row("All", findings.topics))
    caption = (
        "Every message in the log, by topic, largest first. Kind marks retry topics, dead-letter topics and the "
        "broker's own topics. The charts below show the topics of applications."
    )
    if others:
        caption += f" The {LISTED} largest of {len(findings.topics):,} topics are listed; the others are added up."
    columns = ("Topic", "Kind", "Messages", "Bodies", "First stored", "Last stored")
    return Table("Topics", caption, columns, rows, bars="Messages", has_total=True)


def _topic_row(each: TopicTotals) -> tuple[object, ...]:
    return (
        each.topic,
        each.kind.value,
        each.messages,
        bytes_text(each.body_bytes),
        utc(each.first_ms),
        utc(each.last_ms),
    )


def _sum_row(name: str, topics: Sequence[TopicTotals]) -> tuple[object, ...]:
    times = utc(min(each.first_ms for each in topics)), utc(max(each.last_ms for each in topics))
    body_bytes = sum(each.body_bytes for each in topics)
    return (name, "", sum(each.messages for each in topics), bytes_text(body_bytes), *times)


def traffic(findings: Findings, times: Times) -> list[Chart | Table]:
    """Return messages over time, their sizes, and the most frequent tags and keys."""
    if not findings.traffic:
        return []
    return [
        _traffic_chart(findings, times),
        _size_chart(findings),
        *_hot(findings.tags, "tag"),
        *_hot(findings.keys, "key"),
    ]


def _traffic_chart(findings: Findings, times: Times) -> Chart:
    step = step_text(times.step_s)
    largest = findings.of_kind(TopicKind.APPLICATION)
    series = [Steps(name, values, REST_COLOR if name == REST else None) for name, values in findings.traffic.items()]
    totals = [sum(values) for values in zip(*findings.traffic.values(), strict=True)]
    peak = max(range(len(totals)), key=totals.__getitem__)
    most = f"The peak is the {step} from {utc(times.starts[peak] * 1000)}: {count_text(totals[peak], 'message')}."
    caption = f"Messages of applications by store time; each bar is {one_step(times.step_s)}. {most}"
    if times.step_s > 60:
        caption += f" That is {totals[peak] * 60 / times.step_s:,.1f} a minute."
    if REST in findings.traffic:
        caption += (
            f" The {len(series) - 1} largest of {len(largest):,} topics have a color each, the others share one "
            f"({count_text(sum(findings.traffic[REST]), 'message')})."
        )
    alt = f"Stacked bars of messages per {step} for {count_text(len(largest), 'topic')}. {most}"
    title = f"Messages per topic and {step}" if " " not in step else f"Messages per topic, by {step}"
    return timeline_bars(title, caption, alt, times, series, y_label=f"messages per {step}")


def _size_chart(findings: Findings) -> Chart:
    bits = range(min(findings.sizes), max(findings.sizes) + 1)
    counts = [findings.sizes.get(each, 0) for each in bits]
    names = [size_class(each) for each in bits]
    commonest = max(range(len(counts)), key=counts.__getitem__)
    said = f"The most common size is {names[commonest]} bytes: {counts[commonest]:,} of {sum(counts):,}."
    if "iB" in names[commonest]:
        said = said.replace(" bytes", "")
    return bar_chart(
        "Sizes of bodies",
        f"Messages of applications by the size of their body as stored, compressed or not. {said}",
        names,
        counts,
        x_label="messages",
        y_label="bytes in the body",
        alt=f"Histogram of body sizes, in classes that double. {said}",
        value_text=lambda count: f"{count:,.0f}",
    )


def _hot(hot: HotValues, noun: str) -> list[Table]:
    caption = (
        f"{count_text(hot.messages, 'message')} of applications carry a {noun}; there are {hot.different:,} different "
        f"pairs of topic and {noun}."
    )
    if noun == "key":
        caption = (
            f"Messages of applications carry {count_text(hot.messages, 'key')} (a message can have several); there are "
            f"{hot.different:,} different pairs of topic and key."
        )
    title = f"Hottest {noun}s"
    if not hot.top:
        return [Table(title, f"No message of an application carries a {noun}.", (), [])]
    if hot.different == hot.messages and hot.different > len(hot.top):
        return [Table(title, f"{caption} None occurs twice.", (), [])]
    rows = [(each.topic, each.value, each.messages, bytes_text(each.body_bytes)) for each in hot.top]
    if hot.different > len(rows):
        caption += f" These {len(rows)} occur most often:"
    return [Table(title, caption, ("Topic", noun.capitalize(), "Messages", "Bodies"), rows, bars="Messages")]


def latency(findings: Findings, times: Times) -> list[Chart | Table]:
    """Return the latency from the producer's clock to the store's."""
    found = findings.latency
    notes = []
    if found.held_back:
        notes.append(f"Left out: {count_text(found.held_back, 'message')} delayed, timed or in a transaction.")
    if found.redriven:
        letters = count_text(found.redriven, "redriven dead letter")
        notes.append(f"Left out: {letters}; a redriven message keeps its first bornTimestamp.")
    if found.negative:
        notes.append(
            f"{count_text(found.negative, 'message')} stored before bornTimestamp: "
            "the clocks of producer and broker differ."
        )
    if found.without_time:
        messages = count_text(found.without_time, "message")
        notes.append(f"Left out: {messages} whose bornTimestamp is not a date.")
    if found.overall is None:
        return [Table("From producer to store", " ".join(["No message to measure.", *notes]), (), [])] if notes else []
    shown = list(found.by_topic[:LISTED])
    rows = [latency_row(each) for each in shown]
    if len(found.by_topic) > 1:
        rows.append(latency_row(found.overall))
    caption = "Milliseconds from bornTimestamp (the producer's clock) to storeTimestamp (the broker's)."
    if len(shown) < len(found.by_topic):
        caption += (
            f" The {len(shown)} largest of {len(found.by_topic):,} topics are listed; the last line is for all of them."
        )
    table = Table(
        "From producer to store",
        " ".join([caption, *notes]),
        ("Topic", *LATENCY_COLUMNS),
        rows,
        has_total=len(rows) > 1,
    )
    return [_latency_chart(findings, times), table]


def _latency_chart(findings: Findings, times: Times) -> Chart:
    found = findings.latency
    assert found.overall is not None
    lines: dict[str, list[float | None]] = {name: [None] * len(times.starts) for name in ("p50", "p99", "largest")}
    for step, *values in found.by_step:
        for name, value in zip(lines, values, strict=True):
            lines[name][step] = value
    p50, _, p99, _ = found.overall.percentiles
    worst = max(found.by_step, key=lambda each: each[3])
    said = (
        f"Half of all messages were stored within {duration_text(p50)}, 99 % within {duration_text(p99)}; "
        f"the slowest took {duration_text(worst[3])}, stored in the {step_text(times.step_s)} from "
        f"{utc(times.starts[worst[0]] * 1000)}."
    )
    return timeline_lines(
        "From producer to store, over time",
        f"Milliseconds by the {step_text(times.step_s)} in which messages were stored; logarithmic above 1 ms. {said}",
        f"Lines of the median, the 99th percentile and the largest latency over time. {said}",
        times,
        [Steps(name, values) for name, values in lines.items()],
        y_label="milliseconds",
        logarithmic=True,
    )


def latency_row(each: Latency) -> tuple[object, ...]:
    """Return the cells of a latency for `LATENCY_COLUMNS`, after its name."""
    return (each.name, each.messages, *each.percentiles, round(each.largest))
