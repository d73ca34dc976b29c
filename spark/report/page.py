"""Page of a report: figures, then charts, then what the page cannot show."""

from collections.abc import Sequence
from typing import Final

from spark.report import page_consumers, page_failures, page_traffic
from spark.report.charts import Times
from spark.report.findings import Findings
from spark.report.html_report import Chart, Page, Part, Table
from spark.report.texts import bytes_text, duration_text, utc
from spark.report.topic_kinds import TopicKind

_NOTHING: Final = "The log holds no message."
_KINDS: Final = {
    TopicKind.APPLICATION: "messages of applications",
    TopicKind.RETRY: "retries",
    TopicKind.DEAD_LETTER: "dead letters",
    TopicKind.SYSTEM: "records of the broker's own topics",
}


def store_page(findings: Findings, made_ms: int, note: str = "") -> Page:
    """Return the page.  `made_ms` is the time of the reading; `note` says which limits it had, if any."""
    said = [f"Read from {_listed(findings.stores)}.", _extent(findings), "All times are UTC.", note]
    page = Page(_title(findings), " ".join(part for part in said if part))
    page.footer = (
        f"Made by sprocket spark report on {utc(made_ms)} UTC from the segment files themselves. "
        "Prepared and rolled back messages of transactions are not counted. "
        "Body sizes are as stored, compressed or not."
    )
    page.facts = _facts(findings)
    page.sections.append(Part("Summary"))
    if not findings.messages:
        page.sections.append(Table("No messages", _NOTHING, ("Store",), [(store,) for store in findings.stores]))
    else:
        page.sections += page_traffic.summary(findings)
        times = Times(findings.buckets.starts, findings.buckets.step_s)
        _add(page, "Traffic", "", page_traffic.traffic(findings, times))
        _add(page, "Latency", "", page_traffic.latency(findings, times))
        _add(page, "Consumers", "", page_consumers.consumers(findings, times))
        _add(page, "Retries and dead letters", "", page_failures.failures(findings, times))
    if findings.missing:
        page.sections.append(Part("Not shown"))
        page.sections.append(
            Table(
                "What this page cannot show",
                "Each with the reason.",
                ("What", "Why"),
                [tuple(each) for each in findings.missing],
            )
        )
    return page


def _add(page: Page, title: str, text: str, sections: Sequence[Chart | Table]) -> None:
    if sections:
        page.sections += [Part(title, text), *sections]


def _title(findings: Findings) -> str:
    names = [store.partition(" (")[0] for store in findings.stores]
    return f"Messages of {names[0]}" if len(names) == 1 else f"Messages of {len(names)} brokers"


def _listed(names: Sequence[str]) -> str:
    if len(names) > 4:
        return f"{', '.join(names[:3])} and {len(names) - 3} more"
    return ", ".join(names)


def _by_kind(findings: Findings) -> dict[str, str]:
    """Return what the records are, so that they add up to all."""
    totals = {kind: sum(each.messages for each in findings.of_kind(kind)) for kind in _KINDS}
    return {_KINDS[kind]: f"{total:,}" for kind, total in totals.items() if total}


def _extent(findings: Findings) -> str:
    if not findings.messages:
        return ""
    first, last = _bounds(findings)
    return f"The first message was stored at {utc(first)}, the last at {utc(last)}."


def _bounds(findings: Findings) -> tuple[int, int]:
    return min(each.first_ms for each in findings.brokers), max(each.last_ms for each in findings.brokers)


def _facts(findings: Findings) -> dict[str, str]:
    if not findings.messages:
        return {"messages": "0"}
    first, last = _bounds(findings)
    facts = {
        "records in the log, of all kinds": f"{findings.messages:,}",
        **_by_kind(findings),
        "topics": f"{len(findings.topics):,}",
        "size of the records": bytes_text(sum(each.store_bytes for each in findings.brokers)),
        "from first to last": duration_text(last - first),
    }
    if findings.latency.overall is not None:
        facts["99 % stored within"] = duration_text(findings.latency.overall.percentiles[2])
    if findings.lags:
        facts["consumer lag now"] = f"{sum(each.lag for each in findings.lags):,}"
    return facts
