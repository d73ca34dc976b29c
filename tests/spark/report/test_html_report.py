"""The page of a report: readable without a network, whatever the values are."""

from pathlib import Path

from spark.report.charts import Series, bar_chart, heat_map, line_chart, stacked_chart
from spark.report.html_report import Page, Table, cell

PNG = b"\x89PNG\r\n\x1a\n"


def test_a_page_holds_its_charts_and_writes_them_beside_it(tmp_path: Path) -> None:
    series = [Series("a", [0, 1, 2], [3, 4, 5]), Series("b", [0, 1, 2], [1, 10, 1000])]
    charts = [
        line_chart("Latency (p99)", "x", series, x_label="s", y_label="ms", marks={"kill": 2.0}, logarithmic=True),
        line_chart("Line", "x", series[:1], x_label="s", y_label="n", fill=True),
        stacked_chart("Stack", "x", series, x_label="s", y_label="n"),
        bar_chart("Bars", "x", ["q", "r"], [1.5, -2.0], y_label="min", notes=["7", "8"]),
        heat_map("Heat", "x", ["r"], ["c", "d"], {("r", "c"): -0.2}, x_label="h", color_label="min"),
        heat_map("Nothing", "x", ["r"], ["c"], {}, x_label="h", color_label="min"),
    ]
    table = Table("Checks <all>", "c", ("what", "n", "holds"), [("a & b", 12345, True), (None, 0.25, False)])
    path = Page("Title", "Subtitle", {"messages": "1"}, [*charts, table]).write(tmp_path / "out")
    html = path.read_text()
    assert all(chart.png.startswith(PNG) and chart.data_uri in html for chart in charts)
    assert (tmp_path / "out" / "latency-p99.png").read_bytes() == charts[0].png
    assert "Checks &lt;all&gt;" in html and "a &amp; b" in html and "12,345" in html
    assert 'class="yes">✓' in html and 'class="no">✗' in html
    assert "http:" not in html and "https:" not in html


def test_cells() -> None:
    assert [cell(value) for value in (1234567, 0.125, None, True, "x")] == ["1,234,567", "0.1", "–", "✓", "x"]
