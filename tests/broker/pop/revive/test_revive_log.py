"""The bodies of pop's records; the expected ones were written by RocketMQ 5.3.3's classes and fastjson."""

import pytest

from broker.pop.records import AckMsg, BatchAckMsg, PopCheckPoint
from broker.pop.revive.revive_log import encode_ack, encode_checkpoint
from sprocket.remoting.codec.fastjson import loads

CHECKPOINT = PopCheckPoint(so=100, pt=1700000000000, it=60000, n=3, q=1, t="Orders", c="CG", d=[0, 1, 5], bn="broker-a")
COMMON = (100, "CG", "Orders", 1, 1700000000000)


def test_a_checkpoint_reads_as_the_references() -> None:
    assert encode_checkpoint(CHECKPOINT) == (
        b'{"bm":0,"bn":"broker-a","c":"CG","d":[0,1,5],"it":60000,"n":3,"pt":1700000000000,"q":1,'
        b'"reviveTime":1700000060000,"ro":0,"so":100,"t":"Orders"}'
    )
    assert loads(encode_checkpoint(CHECKPOINT), PopCheckPoint) == CHECKPOINT


def test_what_a_checkpoint_does_not_say_is_left_out() -> None:
    bare = PopCheckPoint(so=1, pt=2, it=3, n=1, t='a"b', rp="2")
    assert encode_checkpoint(bare) == (
        b'{"bm":0,"c":"","it":3,"n":1,"pt":2,"q":0,"reviveTime":5,"ro":0,"rp":"2","so":1,"t":"a\\"b"}'
    )


@pytest.mark.parametrize(
    ("ack", "text"),
    [
        (
            AckMsg(105, 100, "CG", "%RETRY%CG+Orders", 1, 1700000000000, "broker-a"),
            b'{"ao":105,"bn":"broker-a","c":"CG","pt":1700000000000,"q":1,"so":100,"t":"%RETRY%CG+Orders"}',
        ),
        (
            BatchAckMsg(-1, *COMMON, "broker-a", [100, 105]),
            b'{"ao":-1,"aol":[100,105],"bn":"broker-a","c":"CG","pt":1700000000000,"q":1,"so":100,"t":"Orders"}',
        ),
        (
            BatchAckMsg(-1, *COMMON, None, [100, 105]),
            b'{"ao":-1,"aol":[100,105],"c":"CG","pt":1700000000000,"q":1,"so":100,"t":"Orders"}',
        ),
    ],
)
def test_an_acknowledgement_reads_as_the_references(ack: AckMsg, text: bytes) -> None:
    assert encode_ack(ack) == text
    assert loads(text, type(ack)) == ack
