"""Every file of examples/ runs to its end and prints what it promises.

One of them starts its own broker; the others get the address of one that they share, as on a user's command line.
"""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from sprocket.testing import Broker

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"

# What each prints, line by line, wherever it stands in the output.
PRINTS = {
    "batch": ["one request, 50 messages", "50 sends, 50 results", "at once"],
    "broadcasting": ["cache-2 received prices", "cache-1, restarted, received seats", "offsets of cache-2"],
    "dead_letter_redrive": [
        "cannot be charged: charge 3",
        "a dry run finds 2",
        "sent back 2 to Charges",
        "charged charge 3",
    ],
    "deduplication": ["attempt 2 sent", "handled invoice 4711", "left out 1"],
    "delayed": ["recalled ", "refused: 'not a handle'", "after 1.5 s", "at a time", "nothing more"],
    "functions": ["ada owes 10", "ada owes 30", "ada owes 35", "dead letters: 1"],
    "handler": ["not now: order 3", "handled order 3 at attempt 2"],
    "ordered": ["the bank does not answer yet", "every order's steps came in order"],
    "outbox": [
        "rolled back: order-1 cannot be shipped to the moon",
        "a relay was killed at work",
        "in sequence, each once: order-1 placed, order-1 paid, order-1 shipped",
        "in sequence, each once: order-2 placed, order-2 paid, order-2 shipped",
    ],
    "request_reply": ["1+2 = 3", "20+22 = 42"],
    "simple_consumer": ["took job 0", "again: job 1 at attempt 2", "done after 2 s: a long job"],
    "sql_filter": ["received 150 eu", "received 500 us", "the others stayed on the broker", "refused:"],
    "stream": ["one by one:", "auto-batch:"],
    "sync_facade": ["received 4", "handled work in sprocket-handler", "topics: ['Plain']"],
    "table": ["now 399", "again {'JFK-LAX': 399, 'JFK-SFO': 510}", "changed JFK-SFO None"],
    "transaction": ["overbooked seat 12A -> ROLLBACK", "received seat 12B", "was never seen"],
    "typed_topic": ["billed 12A 129.5", "dead letter: no booking because of DecodeError"],
    "web_service": ["202 accepted as", "received order 2"],
}
# Their consumers may come before the topic, which the first message creates.
LOGS = {
    "outbox": "event=topic_missing",
    "request_reply": "event=topic_missing",
    "typed_topic": "event=undecodable_dead_letter",
}
ALONE = {"send_and_consume": ["received message 9"]}


@pytest.fixture(scope="module")
def name_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    properties = {"enablePropertyFilter": "true", "recallMessageEnable": "true"}
    with Broker(tmp_path_factory.mktemp("examples"), properties=properties) as broker:
        yield broker.namesrv


def output_of(name: str, *arguments: str) -> str:
    ended = subprocess.run(
        [sys.executable, str(EXAMPLES / f"{name}.py"), *arguments],
        capture_output=True,
        text=True,
        timeout=250,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    # A program that does what it should logs nothing that a user would have to explain.
    logged = [line for line in ended.stderr.splitlines() if LOGS.get(name, "?") not in line]
    assert logged == []
    return ended.stdout


@pytest.mark.parametrize("name", sorted(PRINTS))
def test_example(name: str, name_server: str) -> None:
    output = output_of(name, name_server)
    assert [text for text in PRINTS[name] if text not in output] == [], output


@pytest.mark.parametrize("name", sorted(ALONE))
def test_example_with_a_broker_of_its_own(name: str) -> None:
    output = output_of(name)
    assert [text for text in ALONE[name] if text not in output] == [], output


def test_no_example_is_left_out() -> None:
    files = {path.stem for path in EXAMPLES.glob("*.py")} - {"cluster"}
    assert files == set(PRINTS) | set(ALONE)
