"""The page of clients says what the tests run."""

from tests.compat.maven import ROOT
from tests.compat.storms.clients import CPP, GO, JAVA
from tests.compat.storms.kinds import BY_NAME, KINDS
from tests.compat.storms.matrix_page import page


def test_the_page_is_up_to_date() -> None:
    assert (ROOT / "docs" / "compatibility-clients.md").read_text() == page()


def test_every_kind_is_run_by_a_client_or_has_a_reason() -> None:
    for client in (*JAVA, GO, CPP):
        assert {*client.kinds, *client.without} == {kind.name for kind in KINDS}
        assert set(client.notes) <= set(client.kinds)
        assert all(client.without.values())
    assert len(BY_NAME) == len(KINDS)
