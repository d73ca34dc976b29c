"""Requests of every code with fields and bodies that no client of good will sends, the same for the same dice."""

import random
import struct
import zlib
from collections.abc import Iterator
from typing import NamedTuple

import msgspec

from sprocket.remoting.framing import JSON, ROCKETMQ
from sprocket.remoting.routes import Route
from tests.fuzz.mutation import mutated

TOPIC = "Orders"
# Names that the other end knows: more can go wrong after them than after a refusal.
KNOWN = (TOPIC, "CG", "PG", "broker-a", "DefaultCluster", "TBW102", "0", "1", "6", "16", "*", "true", "false")
NUMBERS = (
    "0",
    "-1",
    "1",
    "2",
    "7",
    "32",
    "255",
    "256",
    "65535",
    "65536",
    "2147483647",
    "-2147483648",
    "2147483648",
    "4294967295",
    "9223372036854775807",
    "-9223372036854775808",
    "9223372036854775808",
    "1" * 60,
    "1700000000000",
    "1e400",
    "NaN",
    "0x10",
    "٣",
    "",
    " ",
    "1 ",
)
TEXTS = (
    "\x00",
    "\x01",
    "\x02",
    "\n",
    "a\nb=c",
    "../../etc/passwd",
    "/etc/passwd",
    "%RETRY%CG",
    "%DLQ%CG",
    "%LMQ%x",
    "%LMQ%" + "y" * 300,
    "RMQ_SYS_TRACE_TOPIC",
    "SCHEDULE_TOPIC_XXXX",
    "rmq_sys_wheel_timer",
    "x" * 127,
    "x" * 128,
    "x" * 70_000,
    "ü€𝄞",
    "a@b",
    "a@b@c",
    "Orders@CG",
    "TAGS\x01a\x02",
    "TAGS\x01a",
    "DELAY\x01-1\x02",
    "DELAY\x0199999999999999999999\x02",
    "TRAN_MSG\x01true\x02PGROUP\x01g\x02",
    "TIMER_DELIVER_MS\x01x\x02",
    "TIMER_DELIVER_MS\x019223372036854775807\x02",
    "TIMER_DELAY_SEC\x01-9\x02",
    "INNER_NUM\x013\x02",
    "INNER_MULTI_DISPATCH\x01%LMQ%a,%LMQ%b\x02INNER_MULTI_QUEUE_OFFSET\x01,,\x02",
    "UNIQ_KEY\x01\x02",
    "UNIQ_KEY\x01k",
    "POP_CK\x011 2 3\x02",
    "0 1 2 3 0 broker-a 0 0",
    "0 1700000000000 60000 999 0 broker-a 0 0",
    "0 1700000000000 60000 0 0 broker-a 0 99999999999999999999",
    "a > 5 AND (b IN ('x') OR c IS NULL)",
    "((((",
    "a BETWEEN 1",
    "'" * 50,
    "a || b || ",
    "127.0.0.1:1",
    "[::1]:10911",
    "127.0.0.1:99999",
    ":",
    "7F00000100002A9F0000000000000000",
    "7F00000100002A9FFFFFFFFFFFFFFFFF",
    "zz",
    "+a=b",
    "+cleanup.policy=COMPACTION",
    "+queue.type=BatchCQ,+a",
    "message.type",
    "{}",
    "[]",
    "null",
    "+message.type=NORMAL",
    "v1 Orders broker-a 0 k",
    "djEgT3JkZXJzIGJyb2tlci1hIDE3MDAwMDAwMDAwMDAga2V5",
    "CLUSTERING",
    "BROADCASTING",
    "TAG",
    "SQL92",
    "MULTI_TAG",
)
BODIES = (
    b"",
    b"\x00",
    b"{}",
    b"[]",
    b"null",
    b"0",
    b'"x"',
    b"{",
    b"[" * 3000,
    b"{" * 3000,
    b'{"a":' * 500,
    b"\xff\xfe",
    b"x" * 70_000,
    b'{"clientID":"c","producerDataSet":[{"groupName":"PG"}],"consumerDataSet":[{"groupName":"CG","consumeType":'
    b'"CONSUME_PASSIVELY","messageModel":"CLUSTERING","consumeFromWhere":"CONSUME_FROM_LAST_OFFSET",'
    b'"subscriptionDataSet":[{"topic":"Orders","subString":"*","subVersion":1,"tagsSet":[],"codeSet":[],'
    b'"classFilterMode":false,"expressionType":"SQL92"}],"unitMode":false}]}',
    b'{"consumerGroup":"CG","clientId":"c","mqSet":[{"topic":"Orders","brokerName":"broker-a","queueId":-5}]}',
    b'{"topicConfigList":[{"topicName":"Orders","readQueueNums":2147483648,"writeQueueNums":-1,"perm":99}]}',
    b'{"topicConfigList":[{"topicName":"../x","readQueueNums":1,"writeQueueNums":1,"attributes":{"+a":"b"}}]}',
    b'{"groupName":"CG","retryQueueNums":-1,"retryMaxTimes":9999999999,"whichBrokerWhenConsumeSlowly":-7}',
    b'{"groupConfigList":[{"groupName":"x\\n"},{"groupName":""}]}',
    b'{"topic":"Orders","consumerGroup":"CG","mode":"POP","popShareQueueNum":-3}',
    b'{"topic":"Orders","consumerGroup":"CG","clientId":"c","strategyName":"AVG","messageModel":"CLUSTERING"}',
    b'{"offsetTable":{{"topic":"Orders","brokerName":"broker-a","queueId":0}:-1}}',
    b'{"offsetTable":{"Orders@CG":{0:-9223372036854775808,1:9223372036854775807}}}',
    b"a=b\nlistenPort=1",
    b"\\u0000=\\uD800",
    b"defaultTopicQueueNums=\\n5",
    b'{"dataVersion":{"counter":-1,"stateVersion":1e99}}',
    b'{"topicConfigSerializeWrapper":{"topicConfigTable":{"Orders":{"topicName":"Orders","readQueueNums":-1}}},'
    b'"filterServerList":[null]}',
    b'{"acks":[{"c":"CG","t":"Orders","r":"0","so":0,"q":0,"rq":0,"pt":1,"it":1,"b":"//8="}],"brokerName":"broker-a"}',
    b'{"clientId":"c","group":"CG","subscriptionData":{"topic":"Orders","subString":"a >","expressionType":"SQL92"}}',
    struct.pack(">iiiii", 22, 0, 0, 0, 2**31 - 1) + b"xx",
    struct.pack(">iiiii", 24, 0, 0, 0, 1) + b"b\x00\x01p",
    struct.pack(">iiiii", -1, 0, 0, 0, -1),
    zlib.compress(b"\x00" * 4000),
    zlib.compress(struct.pack(">i", 2**31 - 1)),
    zlib.compress(struct.pack(">i", 2) + b"{}" + struct.pack(">i", 900) + b"\x00" * 3600),
)


class HostileRequest(NamedTuple):
    """One request, as it is given to a client that sends what it is told."""

    code: int
    fields: dict[str, str]
    body: bytes
    serialization: int


def hostile_requests(route: Route, count: int, dice: random.Random) -> Iterator[HostileRequest]:
    """`count` requests for `route`: some fields as they should be, some absent, some strange."""
    names = [field.encode_name for field in msgspec.structs.fields(route.header)]
    for number in range(count):
        # The first ones lack nothing: what is wrong with one value shows when all others are right.
        absent = 0.0 if number < count // 2 else 0.3
        strangeness = dice.choice((0.1, 0.3, 0.9))
        fields = {name: _value(dice, strangeness) for name in names if dice.random() >= absent}
        body = dice.choice(BODIES)
        if dice.random() < 0.3:
            body = mutated(body, dice)
        yield HostileRequest(int(route.code), fields, body, dice.choice((JSON, ROCKETMQ)))


def _value(dice: random.Random, strangeness: float) -> str:
    if dice.random() >= strangeness:
        return dice.choice(KNOWN)
    return dice.choice(NUMBERS if dice.random() < 0.5 else TEXTS)
