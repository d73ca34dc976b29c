"""Names of properties say what kind of send a message is; values do not."""

import random
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from broker.client.queue_locks import QueueLocks
from broker.config.live_config import LiveConfig
from broker.message_id import UniqueKeys
from broker.send.intake import MessageIntake
from broker.send.send_kinds import is_plain
from broker.timer.timer_intake import TimerIntake
from sprocket.common.errors import RequestError
from sprocket.remoting.bodies.topic import TopicConfig
from sprocket.remoting.codes import RequestCode
from sprocket.remoting.command import Request
from sprocket.remoting.headers.send import SendMessageRequestHeaderV2
from sprocket.remoting.message import properties as names
from sprocket.remoting.message.properties import encode
from store.record.record import TagsCodes
from tests.broker.hot_path import TOPIC, hot_path, properties, property_map
from tests.broker.rig import broker_config, store_config
from tests.broker.test_send import exchange
from tests.clock import ManualClock
from tests.send_headers import send_frame, send_header
from tests.send_plans import send_plan

HOST = bytes((10, 1, 2, 3, 0, 0, 1, 1))
PLAN = send_plan(TopicConfig("Ort", 4, 4), 3)
MARKS = (
    "DEL", "DELAY", "TIMER_DELAY_SEC", "TIMER_DELAY_MS", "TIMER_DELIVER_MS", "TIMER_DEL_UNIQKEY", "TIMER_OUT_MS",
    "TRAN_MSG", "TRAN_PREPARED_QUEUE_OFFSET", "TRANSACTION_CHECK_TIMES", "__transactionId__", "CLUSTER", "POP_CK",
    "INNER_NUM", "INNER_BASE", "INNER_MULTI_DISPATCH", "INNER_MULTI_QUEUE_OFFSET", "REAL_TOPIC", "REAL_QID",
    "_SYS_MSG_PRIORITY_", "__LITE_TOPIC",
)  # fmt: skip


class Intake:
    """A broker's intake without the broker."""

    def __init__(self, root: Path) -> None:
        clock = ManualClock()
        self.config = LiveConfig(broker_config(), store_config(root))
        self.timer = TimerIntake(self.config, clock, random.Random(1).randrange, lambda slot_time: 0)
        core: Any = SimpleNamespace(config=self.config, topics=None, groups=None, locks=QueueLocks(clock))
        keys = UniqueKeys(HOST[:4], 1, 1, clock)
        self.whole = MessageIntake(core, TagsCodes("1s 5s"), keys, self.timer)

    def request(self, properties: str, body: bytes = b"body") -> Request[SendMessageRequestHeaderV2]:
        header = send_header("Ort", queue_id=3, born_timestamp=7, flag=9, properties=properties)
        return Request(code=RequestCode.SEND_MESSAGE_V2, header=header, body=body)


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
        assert is_plain(text), text


@pytest.mark.parametrize(
    ("items", "plain"),
    [
        ({"TRAN_MSG": "true"}, False),
        ({"TIMER_DELAY_SEC": "1"}, False),
        ({"TIMER_DELAY_MS": "1"}, False),
        ({"TIMER_DELIVER_MS": "1"}, False),
        ({"DELAY": "1"}, False),
        ({"CLUSTER": "c"}, False),
        ({"POP_CK": "c"}, False),
        ({"INNER_NUM": "c"}, False),
        ({"INNER_BASE": "c"}, False),
        ({"INNER_MULTI_QUEUE_OFFSET": "c"}, False),
        ({"_SYS_MSG_PRIORITY_": "1"}, False),
        ({"__LITE_TOPIC": "l"}, False),
        ({"TRAN_MSG": "true", "_SYS_MSG_PRIORITY_": "1"}, False),
        ({"TIMER_DELAY_SEC": "1", "_SYS_MSG_PRIORITY_": "1"}, False),
        ({"INNER_MULTI_DISPATCH": "%LMQ%a"}, True),
        ({"TIMER_DEL_UNIQKEY": "k"}, True),
        ({"TIMER_DELAY_SEC": "1", "TIMER_DEL_UNIQKEY": "k"}, False),
        ({"TIMER_DELAY_SEC": "1", "DELAY": "k"}, False),
        ({"TRAN_MSG": "true", "REAL_TOPIC": "k"}, False),
        ({"TRAN_MSG": "true", "TRANSACTION_CHECK_TIMES": "k"}, False),
        ({"TIMER_DELAY_SEC": "1", "REAL_QID": "k"}, False),
    ],
)
def test_names_decide_wherever_they_stand(items: Mapping[str, str], plain: bool) -> None:
    for others in ({}, {"note": "DELAY TRAN_MSG"}, {"TAGS": "CLUSTER", "KEYS": "INNER_NUM"}):
        for text in (encode({**items, **others}), encode({**others, **items}), encode({**others, **items})[:-1]):
            assert is_plain(text) is plain, text


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
        if not is_plain(text):
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
