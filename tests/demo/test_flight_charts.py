"""The charts of the demo: an SVG for each width, with the texts that they are to show."""

from pathlib import Path
from xml.etree import ElementTree

from examples.demo.flight_charts import Series, heat_map, line_chart, stacked_chart
from examples.demo.flight_report import write_page
from spark.report.html_report import Chart, Page

SVG = "{http://www.w3.org/2000/svg}"


def texts_of(chart: Chart) -> set[str]:
    """Return the texts that both widths show."""
    wide, narrow = (
        {"".join(each.itertext()).strip() for each in ElementTree.fromstring(svg).iter(f"{SVG}text")}
        for svg in (chart.wide, chart.narrow)
    )
    return wide & narrow


def test_lines_and_areas_name_their_series_and_marks() -> None:
    series = [Series("a", [0, 1, 2], [3, 4, 5]), Series("b", [0, 1, 2], [1, 10, 1000])]
    lines = line_chart("Latency", "x", series, x_label="s", y_label="ms", marks={"kill": 2.0}, logarithmic=True)
    assert {"a", "b", "s", "ms", "kill"} <= texts_of(lines)
    assert {"a", "n"} <= texts_of(line_chart("Line", "x", series[:1], x_label="s", y_label="n"))
    assert {"a", "b", "n"} <= texts_of(stacked_chart("Stack", "x", series, x_label="s", y_label="n"))


def test_a_heat_map_has_gaps_and_may_be_empty() -> None:
    heat = heat_map("Heat", "x", ["r"], ["c", "d"], {("r", "c"): -0.2}, x_label="h", color_label="min")
    assert {"r", "c", "h", "min"} <= texts_of(heat)
    assert {"r", "c"} <= texts_of(heat_map("Nothing", "x", ["r"], ["c"], {}, x_label="h", color_label="min"))


def test_a_page_has_its_charts_beside_it(tmp_path: Path) -> None:
    chart = line_chart("Latency (p99)", "x", [Series("a", [0, 1], [3, 4])], x_label="s", y_label="ms")
    path = write_page(Page("Title", "Subtitle", {}, [chart]), tmp_path / "out")
    assert path == tmp_path / "out" / "report.html" and "Latency (p99)" in path.read_text()
    assert (tmp_path / "out" / "latency-p99.svg").read_bytes() == chart.wide
