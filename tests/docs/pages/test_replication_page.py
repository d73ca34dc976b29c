"""docs/replication-protocol.md says what the code does."""

from pathlib import Path

from docs.pages.replication_page import page

ROOT = Path(__file__).resolve().parents[3]


def test_page_is_up_to_date() -> None:
    written = (ROOT / "docs" / "replication-protocol.md").read_text(encoding="utf-8")
    assert written == page(), "run `make docs`"
