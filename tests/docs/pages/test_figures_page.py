"""docs/figures.md says what the parts of a broker declare."""

from pathlib import Path

from docs.pages.figures_page import page
from sprocket.common.refusal_reasons import Reason

ROOT = Path(__file__).resolve().parents[3]


def test_page_is_up_to_date() -> None:
    written = (ROOT / "docs" / "figures.md").read_text(encoding="utf-8")
    assert written == page(), "run `make docs`"


def test_page_has_the_figures_of_all_parts_and_all_reasons() -> None:
    text = page()
    for name in ("putTps", "popReviveLag_<queue>", "haSlaveLagBytes", "accessRefused", "msgGetTotalTodayNow"):
        assert f"| `{name}` | " in text
    assert all(f"| `{reason.name.lower()}` | {reason.value} |" in text for reason in Reason)
