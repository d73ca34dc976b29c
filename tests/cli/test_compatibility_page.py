"""docs/compatibility.md says what the routes say, and every code in it is shown or excused."""

from pathlib import Path

import pytest

from broker.unsupported_codes import UNSUPPORTED
from remoting.codes import RequestCode
from sprocket.cli.compatibility_page import ROOT, Row, files_naming_codes, page, rows, served_codes


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
    assert stale == [], "take what is served now out of broker/unsupported_codes.py"


def test_every_served_code_has_a_test(table: list[Row]) -> None:
    assert [row.code.name for row in table if row.servers and not row.tests] == []


def test_each_kind_of_peer_is_looked_at() -> None:
    served = served_codes()
    assert RequestCode.SEND_MESSAGE_V2 in served["broker"]
    assert RequestCode.REGISTER_BROKER in served["name server"]
    assert RequestCode.NOTIFY_CONSUMER_IDS_CHANGED in served["client"]
    assert RequestCode.PULL_MESSAGE not in served["client"], "it asks for it and does not serve it"


def test_a_test_is_found_by_the_name_that_it_names(tmp_path: Path) -> None:
    folder = tmp_path / "tests" / "broker"
    folder.mkdir(parents=True)
    (folder / "test_sends.py").write_text("await ask(RequestCode.SEND_MESSAGE_V2)")
    (folder / "rig.py").write_text("RequestCode.PULL_MESSAGE")
    (folder / "test_routes.py").write_text("RequestCode.PULL_MESSAGE")
    assert files_naming_codes(tmp_path) == {RequestCode.SEND_MESSAGE_V2: {"tests/broker/test_sends.py": 1}}
