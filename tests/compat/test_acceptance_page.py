"""The table of an acceptance run says who passes what, what failed and why, and what differs at the original."""

from tests.compat.acceptance_page import Run, page
from tests.compat.java_client import Outcome

PASSED, FAILED = Outcome(True, 5, ""), Outcome(False, 5, "expected 3 |\n got 2")


def test_a_page_has_a_column_for_each_client_and_the_differences_of_other_servers() -> None:
    text = page(
        [
            Run("Ours", "Java 1", "Remoting", ("send", "pull"), {"send": PASSED, "pull": PASSED}),
            Run("Ours", "Java 2", "Remoting", ("send", "pop"), {"send": FAILED}),
            Run("Ours", "Go", "gRPC", ("send",), missing="go is not on PATH"),
            Run("Theirs", "Java 1", "Remoting", ("send", "pull"), {"send": PASSED, "pull": FAILED}),
            Run("Theirs", "Java 2", "Remoting", ("send", "pop"), {"send": PASSED}),
            Run("Theirs", "Go", "gRPC", ("send",), missing="go is not on PATH"),
        ]
    )
    assert "runs all of its scenarios at Ours and Theirs." in text
    assert "| Scenario | Java 1 | Java 2 |" in text
    assert "| send | passes | **fails** |" in text and "| pull | passes | – |" in text
    assert "| all | 2 of 2 | 0 of 2 |" in text
    assert "- Java 2, `send`: expected 3 / got 2\n- Java 2, `pop`: the scenario never reported\n" in text
    assert "## Theirs\n\nWhat differs:\n\n- Java 1, `pull`: fails here: expected 3 / got 2\n" in text
    assert "- Java 2, `send`: passes here, and fails at Ours" in text
    assert "| send | not run |" in text and "- Go: go is not on PATH" in text


def test_servers_without_a_difference_are_said_to_be_equal() -> None:
    runs = [Run(servers, "Java", "Remoting", ("send",), {"send": PASSED}) for servers in ("Ours", "Theirs")]
    assert "## Theirs\n\nAll scenarios end as at Ours.\n" in page(runs)
