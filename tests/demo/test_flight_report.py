"""The page of the demo: hours, names of carriers, and counts that say what they count."""

from collections.abc import Mapping
from dataclasses import replace
from xml.etree import ElementTree

import pytest

from examples.demo.analysis import Delay, Findings, Latency
from examples.demo.flight_report import flight_page
from examples.demo.sending import Sent
from spark.report.html_report import Chart, Page, Table
from tests.demo.counts import GOOD_COUNTS

_TEXT = "{http://www.w3.org/2000/svg}text"


@pytest.fixture(scope="module")
def page() -> Page:
    """Page of flights that leave at odd minutes of three hours; one flight was stored twice, two came again."""
    delays = [Delay("B6", hour, minute, 150.0, 15, 20) for hour in (5, 6, 8) for minute in (0, 7, 30, 59)]
    delays.append(Delay("EV", 6, 1, 30.0, 10, 1000))
    counts = replace(GOOD_COUNTS, received=12)
    latencies = [Latency("both", 12, (1.0, 2.0, 3.0, 4.0, 5.0))]
    stored = [("broker-a", 100, 5), ("broker-b", 101, 6)]
    findings = Findings(counts, delays, stored, latencies, [(100, 1.0, 2.0), (101, 1.0, 3.0)])
    return flight_page(findings, Sent([str(number) for number in range(10)]), [], {})


def texts(page: Page, title: str) -> list[list[str]]:
    """Texts of a chart, wide and narrow."""
    [chart] = [section for section in page.sections if isinstance(section, Chart) and section.title == title]
    return [
        ["".join(each.itertext()) for each in ElementTree.fromstring(svg).iter(_TEXT)]
        for svg in (chart.wide, chart.narrow)
    ]


def test_flights_are_counted_by_the_hour(page: Page) -> None:
    for shown in texts(page, "Flights by hour of departure"):
        assert [text for text in shown if ":" in text] == ["05:00", "06:00", "07:00", "08:00"]
        assert [text for text in shown if text in ("80", "1,080", "0")][-4:] == ["80", "1,080", "0", "80"]


@pytest.mark.parametrize("title", ["Departure delay by carrier", "Departure delay by carrier and hour"])
def test_carriers_have_names(page: Page, title: str) -> None:
    for shown in texts(page, title):
        assert {"JetBlue Airways (B6)", "ExpressJet Airlines (EV)"} <= set(shown)


def test_each_count_says_what_it_counts(page: Page) -> None:
    [table] = [each for each in page.sections if isinstance(each, Table) and each.title == "What each count counts"]
    found: Mapping[object, object] = {name: number for name, number, _ in table.rows}
    assert found == {
        "Sends acknowledged": 10,
        "Messages stored": 11,
        "Second copies": 1,
        "Deliveries": 12,
        "Repeated deliveries": 2,
    }
