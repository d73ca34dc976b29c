"""The quick way of a timed send makes the message that the long way makes, or leaves it to that."""

import random
from pathlib import Path

import pytest

from broker.client.queue_locks import QueueLocks
from broker.config.live_config import LiveConfig
from broker.message_id import UniqueKeys
from broker.send.intake import MessageIntake
from broker.send.send_kinds import SendKind, kind_of
from broker.subscription.subscription_groups import SubscriptionGroups
from broker.timer.recall_handle import RecallHandle, handle_of
from broker.timer.timer_intake import TimerIntake
from broker.topic.topics import TopicTable
from sprocket.common.errors import RequestError
from sprocket.remoting.bodies.topic import TopicConfig
from sprocket.remoting.codes import RequestCode
from sprocket.remoting.command import Request
from sprocket.remoting.headers.send import SendMessageRequestHeaderV2
from store.record.record import TagsCodes
from tests.broker.rig import broker_config, store_config
from tests.clock import ManualClock
from tests.send_headers import send_header
from tests.send_plans import send_plan

HOST = bytes((10, 1, 2, 3, 0, 0, 1, 1))
KEY = "UNIQ_KEY\x01" + "7F0000010B2A18B4AAC2" + "0" * 12 + "\x02"
SUFFIX = b"MSG_REGION\x01DefaultRegion\x02TRACE_ON\x01true\x02CLUSTER\x01DefaultCluster\x02"
DELAY = "TIMER_DELAY_MS\x015000\x02"


class Intake:
    """A broker's intake without the broker."""

    def __init__(self, root: Path) -> None:
        clock = ManualClock()
        self.config = LiveConfig(broker_config(), store_config(root))
        self.timer = TimerIntake(self.config, clock, random.Random(1).randrange, lambda slot_time: 0)
        tables: tuple[TopicTable, SubscriptionGroups] = (None, None)  # type: ignore[assignment] # not asked
        self.whole = MessageIntake(
            self.config, *tables, QueueLocks(clock), TagsCodes("1s 5s"), UniqueKeys(HOST[:4], 1, 1, clock), self.timer
        )

    def request(self, properties: str, body: bytes = b"body") -> Request[SendMessageRequestHeaderV2]:
        header = send_header("Ort", queue_id=3, born_timestamp=7, flag=9, properties=properties)
        return Request(code=RequestCode.SEND_MESSAGE_V2, header=header, body=body)


PLAN = send_plan(TopicConfig("Ort", 4, 4), 3)


@pytest.mark.parametrize(
    "properties",
    [
        KEY + DELAY,
        KEY + DELAY[:-1],
        DELAY + "WAIT\x01true\x02" + KEY + "TAGS\x01grün\x02",
        KEY + "note\x01TIMER_DELAY_MS, TRAN_MSG and INNER_NUM; CLUSTER\x02" + DELAY + "xREAL_TOPIC\x01x\x02",
        KEY + "TAGS\x01a\x02TIMER_DELAY_SEC\x0112\x02",
        KEY + f"TIMER_DELIVER_MS\x01{ManualClock().wall_ms() + 3000}\x02",
    ],
)
def test_a_common_form_is_made_quickly_and_is_the_same(tmp_path: Path, properties: str) -> None:
    intake = Intake(tmp_path)
    request = intake.request(properties)
    assert kind_of(properties) is SendKind.TIMED
    quick = intake.whole.timed.message(request, PLAN, HOST, SUFFIX)
    assert quick is not None
    message, key = intake.whole.message(request, PLAN, HOST)
    assert quick[0] == message
    handle = handle_of(message.properties, "broker-a", key) or b""
    assert quick[1:] == (key, handle)
    told = RecallHandle.decode(handle.decode())
    assert (told.topic, told.broker_name, told.unique_key) == ("Ort", "broker-a", key.decode())
    assert told.encode() == handle.decode()


@pytest.mark.parametrize(
    ("properties", "body"),
    [
        (DELAY, b"body"),
        (KEY, b"body"),
        (KEY + "TIMER_DELAY_MS\x01\x02", b"body"),
        (KEY + "xTIMER_DELAY_MS\x015000\x02", b"body"),
        (KEY + "k\x01TIMER_DELAY_MS\x01" + "5000\x02", b"body"),
        (KEY + KEY + DELAY, b"body"),
        (KEY + DELAY + "TIMER_DELAY_SEC\x011\x02", b"body"),
        (KEY + DELAY + "DELAY\x013\x02", b"body"),
        (KEY + DELAY + "TIMER_DEL_UNIQKEY\x01Ort+1\x02", b"body"),
        (KEY + DELAY + "TIMER_OUT_MS\x011\x02", b"body"),
        (KEY + DELAY + "REAL_TOPIC\x01Other\x02", b"body"),
        (KEY + DELAY + "TRAN_MSG\x01true\x02", b"body"),
        (KEY + DELAY + "INNER_NUM\x013\x02", b"body"),
        (KEY + DELAY + "CLUSTER\x01c\x02", b"body"),
        (KEY + DELAY + "POP_CK\x01c\x02", b"body"),
        (KEY.replace("AAC2", "AA-2") + DELAY, b"body"),
        (KEY + DELAY, b""),
        (KEY + DELAY, bytes((4 << 20) + 1)),
        (KEY + DELAY + "k\x01" + "v" * 32_700 + "\x02", b"body"),
        (KEY + "TIMER_DELIVER_MS\x0112\x02", b"body"),  # past: straight to its topic
    ],
)
def test_other_forms_are_left_to_the_long_way(tmp_path: Path, properties: str, body: bytes) -> None:
    intake = Intake(tmp_path)
    is_timed = kind_of(properties) is SendKind.TIMED
    assert not is_timed or intake.whole.timed.message(intake.request(properties, body), PLAN, HOST, SUFFIX) is None


@pytest.mark.parametrize("delay", ["TIMER_DELAY_SEC\x0199999999\x02", "TIMER_DELAY_MS\x01soon\x02"])
def test_what_is_refused_is_refused_in_the_same_words(tmp_path: Path, delay: str) -> None:
    intake = Intake(tmp_path)
    request = intake.request(KEY + delay)
    with pytest.raises(RequestError) as quick:
        intake.whole.timed.message(request, PLAN, HOST, SUFFIX)
    with pytest.raises(RequestError) as slow:
        intake.whole.message(request, PLAN, HOST)
    assert (quick.value.code, quick.value.remark) == (slow.value.code, slow.value.remark)
