"""docs/engine-requests.md says what the planners say."""

from pathlib import Path

from docs.pages.requests_page import page

ROOT = Path(__file__).resolve().parents[3]


def test_page_is_up_to_date() -> None:
    written = (ROOT / "docs" / "engine-requests.md").read_text(encoding="utf-8")
    assert written == page(), "run `make docs`"
