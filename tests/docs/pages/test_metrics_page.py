"""docs/metrics.md is what the declarations say."""

from pathlib import Path

from docs.pages.metrics_page import page

ROOT = Path(__file__).resolve().parents[3]


def test_page_is_up_to_date() -> None:
    assert (ROOT / "docs" / "metrics.md").read_text(encoding="utf-8") == page(), "run `make docs`"
