"""Names of properties say what kind of send a message is; values do not."""

import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from broker.send.send_kinds import SendKind, kind_of
from sprocket.common.errors import RequestError
from sprocket.remoting.message import properties as names
from sprocket.remoting.message.properties import encode
from tests.broker.hot_path import TOPIC, hot_path, properties, property_map
from tests.broker.send.test_timed_sends import HOST, PLAN, Intake
from tests.broker.test_send import exchange
from tests.send_headers import send_frame

PLAIN, HALF, TIMED, OTHER = SendKind
MARKS = (
    "DEL", "DELAY", "TIMER_DELAY_SEC", "TIMER_DELAY_MS", "TIMER_DELIVER_MS", "TIMER_DEL_UNIQKEY", "TIMER_OUT_MS",
    "TRAN_MSG", "TRAN_PREPARED_QUEUE_OFFSET", "TRANSACTION_CHECK_TIMES", "__transactionId__", "CLUSTER", "POP_CK",
    "INNER_NUM", "INNER_BASE", "INNER_MULTI_DISPATCH", "INNER_MULTI_QUEUE_OFFSET", "REAL_TOPIC", "REAL_QID",
    "_SYS_MSG_PRIORITY_", "__LITE_TOPIC",
)  # fmt: skip


@pytest.mark.parametrize("mark", MARKS)
def test_a_value_does_not_decide(mark: str) -> None:
    for text in (
        encode({"note": mark}),
        encode({"note": f"the {mark} of it", "TAGS": mark, "KEYS": f"{mark} {mark}"}),
        encode({f"x{mark}": "1", f"{mark}x": "1", f"{mark} ": "1", mark.lower(): "1"}),
        f"k\x01{mark}\x015\x02",  # the value of k, which holds a separator
        f"a\x01b\x02{mark}\x02c\x01d\x02",  # no property
        encode({"note": mark})[:-1],
    ):
        assert kind_of(text) is PLAIN, text


@pytest.mark.parametrize(
    ("items", "kind"),
    [
        ({"TRAN_MSG": "true"}, HALF),
        ({"TIMER_DELAY_SEC": "1"}, TIMED),
        ({"TIMER_DELAY_MS": "1"}, TIMED),
        ({"TIMER_DELIVER_MS": "1"}, TIMED),
        ({"DELAY": "1"}, OTHER),
        ({"CLUSTER": "c"}, OTHER),
        ({"POP_CK": "c"}, OTHER),
        ({"INNER_NUM": "c"}, OTHER),
        ({"INNER_BASE": "c"}, OTHER),
        ({"INNER_MULTI_QUEUE_OFFSET": "c"}, OTHER),
        ({"_SYS_MSG_PRIORITY_": "1"}, OTHER),
        ({"__LITE_TOPIC": "l"}, OTHER),
        ({"TRAN_MSG": "true", "_SYS_MSG_PRIORITY_": "1"}, OTHER),
        ({"TIMER_DELAY_SEC": "1", "_SYS_MSG_PRIORITY_": "1"}, OTHER),
        ({"INNER_MULTI_DISPATCH": "%LMQ%a"}, PLAIN),
        ({"TIMER_DEL_UNIQKEY": "k"}, PLAIN),
        ({"TIMER_DELAY_SEC": "1", "TIMER_DEL_UNIQKEY": "k"}, OTHER),
        ({"TIMER_DELAY_SEC": "1", "DELAY": "k"}, OTHER),
        ({"TRAN_MSG": "true", "REAL_TOPIC": "k"}, OTHER),
        ({"TRAN_MSG": "true", "TRANSACTION_CHECK_TIMES": "k"}, OTHER),
        ({"TIMER_DELAY_SEC": "1", "REAL_QID": "k"}, OTHER),
    ],
)
def test_names_decide_wherever_they_stand(items: Mapping[str, str], kind: SendKind) -> None:
    for others in ({}, {"note": "DELAY TRAN_MSG"}, {"TAGS": "CLUSTER", "KEYS": "INNER_NUM"}):
        for text in (encode({**items, **others}), encode({**others, **items}), encode({**others, **items})[:-1]):
            assert kind_of(text) is kind, text


async def test_a_plain_send_takes_the_quick_way_whatever_its_values_hold(tmp_path: Path) -> None:
    async with hot_path(tmp_path) as path:

        def slow(*arguments: Any) -> Any:
            raise AssertionError("a plain message")

        path.send_processor._uncommon = slow  # type: ignore[method-assign]
        texts = [properties(note=f"was {mark}", KEYS=mark) for mark in MARKS]
        frames = [send_frame(n, path.send_header(properties=text), b"x") for n, text in enumerate(texts)]
        answers = await exchange(path, b"".join(frames), len(frames))
        assert {answer["code"] for answer in answers} == {0}
        for number, mark in enumerate(MARKS):
            stored = property_map(path.record(TOPIC, 0, number))
            assert (stored["note"], stored["KEYS"]) == (f"was {mark}", mark)


def test_what_is_called_plain_is_stored_as_it_came(tmp_path: Path) -> None:
    """The long way, which maps all properties, changes nothing of it but what a broker adds."""
    intake, dice = Intake(tmp_path), random.Random(5)
    words = [*MARKS, *(f"x{mark}" for mark in MARKS), "TAGS", "KEYS", "a", "WAIT"]
    plain = 0
    for _ in range(3000):
        chosen = dice.sample(words, dice.randint(0, 4))
        items = {"UNIQ_KEY": "K"} | {name: dice.choice([*MARKS, "1", "true", "%LMQ%a"]) for name in chosen}
        text = encode(items)
        if kind_of(text) is not PLAIN:
            continue
        plain += 1
        try:
            message, key = intake.whole.message(intake.request(text), PLAN, HOST)
        except RequestError as error:
            raise AssertionError(f"{items} is refused: {error}") from error
        added = {"MSG_REGION": "DefaultRegion", "TRACE_ON": "true", "CLUSTER": "DefaultCluster"}
        assert names.parse(message.properties.decode()) == items | added
        assert (message.topic, message.queue_id, key) == ("Ort", 3, b"K")
    assert plain > 500
