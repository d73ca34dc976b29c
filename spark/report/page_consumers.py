"""Part of the page about consumers: deliveries, their latency, and lag."""

from typing import Final

from spark.report.charts import Steps, Times, timeline_lines
from spark.report.findings import Findings, GroupConsumption, Traced
from spark.report.html_report import Chart, Table
from spark.report.page_traffic import LATENCY_COLUMNS, latency_row
from spark.report.texts import count_text, step_text, utc

_DRAWN: Final = 6
_LISTED: Final = 25


def consumers(findings: Findings, times: Times) -> list[Chart | Table]:
    """Return latency to consumption, waiting messages over time, and current lag, as far as they are known."""
    sections: list[Chart | Table] = []
    if findings.traced is not None:
        sections += _traced(findings.traced, times)
    if findings.popped:
        sections.append(_popped(findings, times))
    if findings.lags:
        sections.append(_lags(findings))
    return sections


def _traced(traced: Traced, times: Times) -> list[Chart | Table]:
    note = ""
    if traced.not_in_log:
        deliveries = count_text(traced.not_in_log, "delivery", "deliveries")
        note = f" Left out: {deliveries} of messages that the log does not hold."
    tables = [
        Table(
            "From producer to consumer",
            "Milliseconds from bornTimestamp to the first delivery to a member of the group, by the traces that "
            "clients sent. Messages without a trace are not counted." + note,
            ("Group", *LATENCY_COLUMNS),
            [latency_row(each.latency) for each in traced.groups],
        ),
        Table(
            "Work of the consumers",
            "Deliveries to members of the group (each retry is one more), failures, and the milliseconds that members "
            "took, by the same traces.",
            ("Group", "Delivered", "Ended", "Failed", "p50 ms", "p99 ms", "Largest ms"),
            [_handling(each) for each in traced.groups],
        ),
    ]
    waiting = sorted(traced.waiting.items(), key=lambda each: -max(each[1], default=0))[:_DRAWN]
    if not waiting:
        return [*tables] if traced.groups else []
    group, most = waiting[0][0], max(waiting[0][1])
    said = f"The longest backlog is that of {group}: {count_text(most, 'message')}."
    step = step_text(times.step_s)
    chart = timeline_lines(
        "Waiting to be consumed, over time",
        f"Messages stored and not yet delivered to the group, at the end of each {step}, by the traces. Messages that "
        f"were never delivered to the group, or have no trace, are not counted. {said}" + _only(len(traced.waiting)),
        f"Lines of the messages waiting for each group over time. {said}",
        times,
        [Steps(name, values) for name, values in waiting],
        y_label="messages waiting",
    )
    return [*tables, chart]


def _handling(each: GroupConsumption) -> tuple[object, ...]:
    if each.cost is None:
        return (each.group, each.attempts, 0, each.failures, None, None, None)
    p50, _, p99, _ = each.cost.percentiles
    return (each.group, each.attempts, each.cost.messages, each.failures, p50, p99, round(each.cost.largest))


def _popped(findings: Findings, times: Times) -> Chart:
    lines = sorted(findings.popped.items(), key=lambda each: -max((value or 0 for value in each[1]), default=0))
    name, most = lines[0][0], max((value or 0 for value in lines[0][1]), default=0)
    said = f"The largest lag is that of {name}: {count_text(most, 'message')}."
    return timeline_lines(
        "Lag of consumers that pop, over time",
        f"Messages stored and not yet popped, at the end of each {step_text(times.step_s)}, by the checkpoints that "
        "the broker writes for pops. It writes them when a pop is due, so the latest pops are missing. "
        f"{said}" + _only(len(lines)),
        f"Lines of the lag of each group that pops. {said}",
        times,
        [Steps(name, values) for name, values in lines[:_DRAWN]],
        y_label="messages behind",
    )


def _only(count: int) -> str:
    return f" The {_DRAWN} largest of {count:,} are drawn." if count > _DRAWN else ""


def _lags(findings: Findings) -> Table:
    shown, others = findings.lags[:_LISTED], findings.lags[_LISTED:]
    several = len(findings.stores) > 1
    rows = [
        (
            each.group,
            each.topic,
            *([each.broker] if several else []),
            each.queues,
            each.lag,
            each.oldest_ms and utc(each.oldest_ms),
        )
        for each in shown
    ]
    blank = ("", "") if several else ("",)
    if others:
        rows.append(
            (
                f"{len(others):,} with less lag",
                *blank,
                sum(each.queues for each in others),
                sum(each.lag for each in others),
                None,
            )
        )
    rows.append(
        ("All", *blank, sum(each.queues for each in findings.lags), sum(each.lag for each in findings.lags), None)
    )
    return Table(
        "Consumer lag now",
        "Messages that a group has not committed yet, by config/consumerOffset.json and the ConsumeQueues on the disk. "
        "Brokers write that file every few seconds. The oldest is the first message after a committed offset.",
        ("Group", "Topic", *(["Broker"] if several else []), "Queues", "Lag", "Oldest message stored"),
        rows,
        bars="Lag",
        has_total=True,
    )
