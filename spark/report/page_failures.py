"""Part of the page about retries and dead letters."""

from typing import Final

from spark.report.charts import Steps, Times, timeline_bars
from spark.report.findings import Findings
from spark.report.html_report import Chart, Table
from spark.report.texts import count_text, one_step, step_text

_DRAWN: Final = 6
_LISTED: Final = 25
_REST: Final = "all other groups"


def failures(findings: Findings, times: Times) -> list[Chart | Table]:
    """Return retries and dead letters by group, and over time."""
    if not findings.failures:
        return [Table("None", "The log holds no message of a retry topic or a dead-letter topic.", (), [])]
    sections: list[Chart | Table] = [_flow(findings)]
    if findings.retries:
        sections.append(_chart("Retries over time", "Messages sent back for another try", findings.retries, times))
    if findings.dead_letters:
        sections.append(
            _chart("Dead letters over time", "Messages that failed their last try", findings.dead_letters, times)
        )
    return sections


def _flow(findings: Findings) -> Table:
    shown, others = findings.failures[:_LISTED], findings.failures[_LISTED:]
    rows: list[tuple[object, ...]] = [(each.origin, each.group, each.retries, each.dead_letters) for each in shown]
    if others:
        rows.append(
            (
                f"{len(others):,} more pairs",
                "",
                sum(each.retries for each in others),
                sum(each.dead_letters for each in others),
            )
        )
    retries = sum(each.retries for each in findings.failures)
    rows.append(("All", "", retries, sum(each.dead_letters for each in findings.failures)))
    return Table(
        "From topic to retry to dead letter",
        "Records in the retry topic (%RETRY%) and the dead-letter topic (%DLQ%) of each group, by the topic to which "
        "the message was first sent, if the record names it. A message with three retries counts three times.",
        ("Sent to", "Group", "Retries", "Dead letters"),
        rows,
        bars="Retries" if retries else "Dead letters",
        has_total=True,
    )


def _chart(title: str, what: str, by_group: dict[str, list[int]], times: Times) -> Chart:
    groups = sorted(by_group, key=lambda group: (-sum(by_group[group]), group))
    series = [Steps(group, by_group[group]) for group in groups[:_DRAWN]]
    if len(groups) > _DRAWN:
        rest = [sum(values) for values in zip(*(by_group[group] for group in groups[_DRAWN:]), strict=True)]
        series.append(Steps(_REST, rest))
    total = sum(map(sum, by_group.values()))
    said = f"{count_text(total, 'record')} of {groups[0]}."
    if len(groups) > 1:
        said = f"{count_text(total, 'record')} of {len(groups):,} groups, most of them of {groups[0]}."
    return timeline_bars(
        title,
        f"{what}, by store time; each bar is {one_step(times.step_s)}. {said}",
        f"Stacked bars of records by group over time. {said}",
        times,
        series,
        y_label=f"records per {step_text(times.step_s)}",
    )
