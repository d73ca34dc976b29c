"""docs/compatibility.md says what the routes say, and every code in it is shown or excused."""

from pathlib import Path

import pytest

from docs.pages.compatibility_page import ROOT, MarkedTest, Row, marked_tests, page, rows, served_codes
from docs.pages.unsupported_codes import UNSUPPORTED
from sprocket.remoting.codes import RequestCode


@pytest.fixture(scope="module")
def table() -> list[Row]:
    return rows()


def test_page_is_up_to_date() -> None:
    written = (ROOT / "docs" / "compatibility.md").read_text(encoding="utf-8")
    assert written == page(), "run `make docs`"


def test_every_code_is_served_or_has_a_reason(table: list[Row]) -> None:
    assert [row.code for row in table] == sorted(RequestCode)
    assert [row.code.name for row in table if not row.servers and not row.reason] == []


def test_no_reason_stands_beside_a_route(table: list[Row]) -> None:
    stale = [row.code.name for row in table if row.servers and row.code in UNSUPPORTED]
    assert stale == [], "take what is served now out of docs/pages/unsupported_codes.py"


def test_every_served_code_has_a_test(table: list[Row]) -> None:
    missing = [row.code.name for row in table if row.servers and not row.tests]
    assert missing == [], "mark a test that asks for the code: @pytest.mark.code(RequestCode.X)"


def test_no_code_that_nobody_serves_has_a_test(table: list[Row]) -> None:
    assert [row.code.name for row in table if row.tests and not row.servers] == []


def test_each_kind_of_peer_is_looked_at() -> None:
    served = served_codes()
    assert RequestCode.SEND_MESSAGE_V2 in served["broker"]
    assert RequestCode.REGISTER_BROKER in served["name server"]
    assert RequestCode.NOTIFY_CONSUMER_IDS_CHANGED in served["client"]
    assert RequestCode.PULL_MESSAGE not in served["client"], "it asks for it and does not serve it"


def test_a_test_is_found_by_its_mark_and_not_by_what_it_mentions(tmp_path: Path) -> None:
    folder = tmp_path / "tests" / "broker"
    folder.mkdir(parents=True)
    (folder / "test_sends.py").write_text(
        "@pytest.mark.code(RequestCode.SEND_MESSAGE, RequestCode.SEND_MESSAGE_V2)\n"
        "@pytest.mark.timeout(9)\n"
        "async def test_a_send(): await ask(RequestCode.PULL_MESSAGE)\n"
    )
    (folder / "rig.py").write_text("@pytest.mark.code(RequestCode.PULL_MESSAGE)\ndef test_x(): ...\n")
    found = MarkedTest("tests/broker/test_sends.py", "test_a_send")
    assert marked_tests(tmp_path) == {RequestCode.SEND_MESSAGE: [found], RequestCode.SEND_MESSAGE_V2: [found]}


def test_a_mark_with_an_unknown_code_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "test_a.py").write_text("@pytest.mark.code(RequestCode.SEND)\ndef test_a(): ...\n")
    with pytest.raises(KeyError, match="SEND"):
        marked_tests(tmp_path)
