"""What another master gets of a message that is sent on."""

from broker.failover.escaped_message import EscapedMessage
from sprocket.remoting.message.properties import encode, parse
from sprocket.remoting.message.record import SysFlag
from sprocket.remoting.message.topic_names import TIMER_TOPIC, TRANS_HALF_TOPIC
from store.record.record import PendingMessage


def escaped(topic: str, queue_id: int = 3, sys_flag: int = 0, **properties: str) -> EscapedMessage:
    encoded = encode(properties).encode()
    return EscapedMessage(PendingMessage(topic, queue_id, memoryview(b"body"), encoded, 0, 7, sys_flag, 5, b"h" * 8, 2))


def sent(message: EscapedMessage) -> dict[str, str]:
    return parse(message.header(1, "own", "broker-b").properties)


def test_what_is_due_is_not_delayed_again() -> None:
    message = escaped("Orders", DELAY="3", REAL_TOPIC="Orders", REAL_QID="3", KEYS="k")
    assert (message.topic, message.queue_id) == ("Orders", 3)
    header = message.header(1, "own", "broker-b")
    assert (header.topic, header.queue_id, header.flag, header.reconsume_times) == ("Orders", 1, 7, 2)
    assert header.producer_group == "own"
    assert "DELAY" not in sent(message)
    assert sent(message)["KEYS"] == "k"


def test_a_message_of_the_wheel_is_timed_again_for_its_own_time() -> None:
    named = escaped(TIMER_TOPIC, 0, REAL_TOPIC="R", REAL_QID="6", TIMER_OUT_MS="4000", TIMER_DELIVER_MS="4500")
    assert (named.topic, named.queue_id) == ("R", 6)
    assert sent(named) == {"TIMER_DELIVER_MS": "4500"}
    delayed = escaped(TIMER_TOPIC, 0, REAL_TOPIC="R", REAL_QID="6", TIMER_OUT_MS="4000", TIMER_DELAY_SEC="9")
    assert sent(delayed) == {"TIMER_DELIVER_MS": "4001"}  # nine seconds from now would be too late


def test_a_half_message_is_prepared_again() -> None:
    half = escaped(TRANS_HALF_TOPIC, 0, REAL_TOPIC="Orders", REAL_QID="1", PGROUP="PG", TRAN_PREPARED_QUEUE_OFFSET="9")
    header = half.header(1, "own", "broker-b")
    assert (header.topic, header.producer_group, header.sys_flag) == ("Orders", "PG", SysFlag.TRANSACTION_PREPARED)
    assert sent(half) == {"PGROUP": "PG", "TRAN_MSG": "true"}


def test_flags_of_the_record_stay_here_and_those_of_the_body_go() -> None:
    flags = SysFlag.COMPRESSED | SysFlag.BORN_HOST_V6 | SysFlag.STORE_HOST_V6 | SysFlag.TRANSACTION_COMMIT
    assert escaped("Orders", sys_flag=int(flags)).header(0, "own", "b").sys_flag == SysFlag.COMPRESSED
