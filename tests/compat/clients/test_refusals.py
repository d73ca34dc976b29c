"""What a broker refuses: one table of bad requests goes to Apache RocketMQ's broker and to ours.

Codes must be the same, and remarks where they are sentences of their own.  What we mean to answer otherwise stands in
`DELIBERATE` with its reason, and in docs/refusals.md.
"""

import json
import re
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import pytest

from tests.compat import maven, wire
from tests.compat.cluster import ApacheCluster, SprocketCluster

TOPIC, GROUP = "Refused", "RefusedGroup"
MAX_MESSAGE_BYTES = 4096
_SETTINGS = {
    "maxMessageSize": str(MAX_MESSAGE_BYTES),
    "autoCreateSubscriptionGroup": "false",
    "timerMaxDelaySec": "60",
}


@dataclass(frozen=True)
class Case:
    """One request.  `is_said` compares the remarks, too."""

    name: str
    code: int
    fields: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    is_said: bool = True


def send(name: str, *, body: bytes = b"body", properties: str = "UNIQ_KEY\x01K\x02", **changes: str) -> Case:
    fields = {
        "producerGroup": "PG", "topic": TOPIC, "defaultTopic": "Nothing", "defaultTopicQueueNums": "4",
        "queueId": "0", "sysFlag": "0", "bornTimestamp": "1700000000000", "flag": "0", "properties": properties,
        "reconsumeTimes": "0", "unitMode": "false", "batch": "false",
    }  # fmt: skip
    is_said = changes.pop("said", "yes") == "yes"
    return Case("send " + name, 10, fields | changes, body, is_said)


def pull(name: str, **changes: str) -> Case:
    fields = {
        "consumerGroup": GROUP, "topic": TOPIC, "queueId": "0", "queueOffset": "0", "maxMsgNums": "32", "sysFlag": "4",
        "commitOffset": "0", "suspendTimeoutMillis": "0", "subscription": "*", "subVersion": "0",
        "expressionType": "TAG",
    }  # fmt: skip
    return Case("pull " + name, 11, fields | changes)


def create(name: str, **changes: str) -> Case:
    fields = {
        "topic": "New", "defaultTopic": "TBW102", "readQueueNums": "2", "writeQueueNums": "2", "perm": "6",
        "topicFilterType": "SINGLE_TAG", "topicSysFlag": "0", "order": "false", "attributes": "",
    }  # fmt: skip
    is_said = changes.pop("said", "yes") == "yes"
    return Case("create topic " + name, 17, fields | changes, is_said=is_said)


def back(name: str, **changes: str) -> Case:
    fields = {"offset": "0", "group": GROUP, "delayLevel": "0", "originMsgId": "", "originTopic": TOPIC}
    return Case("send back " + name, 36, fields | {"unitMode": "false", "maxReconsumeTimes": "16"} | changes)


def at(name: str, code: int, **changes: str) -> Case:
    return Case(name, code, {"consumerGroup": GROUP, "topic": TOPIC, "queueId": "0"} | changes)


def group(name: str, config: object) -> Case:
    return Case("create group " + name, 200, {}, json.dumps(config).encode())


_IN_A_MINUTE = str(int(time.time() * 1000) + 3_600_000)
CASES = [
    # Names of topics
    send("to a blank topic", topic=" "),
    send("to no topic", topic=""),
    send("to illegal characters", topic="a.b"),
    send("to umlauts", topic="Grün"),
    send("to a long topic", topic="t" * 128),
    send("to an unknown topic", topic="Unknown"),
    send("to a retry topic of nobody", topic="%RETRY%Nobody"),
    send("to the schedule topic", topic="SCHEDULE_TOPIC_XXXX"),
    send("to the half topic", topic="RMQ_SYS_TRANS_HALF_TOPIC"),
    send("to the op topic", topic="RMQ_SYS_TRANS_OP_HALF_TOPIC"),
    send("to the self test topic", topic="SELF_TEST_TOPIC"),
    send("to the offset moved event", topic="OFFSET_MOVED_EVENT"),
    send("to the check max time topic", topic="TRANS_CHECK_MAX_TIME_TOPIC"),
    send("to the benchmark topic", topic="BenchmarkTest"),
    # Queues and permissions
    send("to a queue that is not there", queueId="99", said="no"),
    send("to any queue", queueId="-1"),
    send("to a topic without write permission", topic="ReadOnly"),
    # Sizes
    send("of no body", body=b""),
    send("of the largest body", body=b"x" * MAX_MESSAGE_BYTES),
    send("of too large a body", body=b"x" * (MAX_MESSAGE_BYTES + 1)),
    send("of a huge body", body=b"x" * (1 << 18)),
    send("of the longest properties", properties=f"UNIQ_KEY\x01K\x02p\x01{'v' * 32500}\x02"),
    send("of too long properties", properties=f"UNIQ_KEY\x01K\x02p\x01{'v' * 32767}\x02"),
    send("of twice too long properties", properties=f"UNIQ_KEY\x01K\x02p\x01{'v' * 70000}\x02"),
    # Kinds
    send("of an inner number", properties="UNIQ_KEY\x01K\x02INNER_NUM\x013\x02"),
    send("of an inner batch to a simple topic", sysFlag="64"),
    send("with a delay that is no number", properties="UNIQ_KEY\x01K\x02DELAY\x01x\x02", said="no"),
    send("with a negative delay", properties="UNIQ_KEY\x01K\x02DELAY\x01-3\x02"),
    send("with a level beyond all", properties="UNIQ_KEY\x01K\x02DELAY\x0199\x02"),
    send("with a deliver time that is no number", properties="UNIQ_KEY\x01K\x02TIMER_DELIVER_MS\x01x\x02"),
    send("with a delay in s that is no number", properties="UNIQ_KEY\x01K\x02TIMER_DELAY_SEC\x01x\x02"),
    send("with a deliver time too far off", properties=f"UNIQ_KEY\x01K\x02TIMER_DELIVER_MS\x01{_IN_A_MINUTE}\x02"),
    send("with a delay too long", properties="UNIQ_KEY\x01K\x02TIMER_DELAY_MS\x0190000\x02"),
    send("with a delay that is past", properties="UNIQ_KEY\x01K\x02TIMER_DELIVER_MS\x011000\x02"),
    send(
        "that deletes what is due",
        properties="UNIQ_KEY\x01K\x02TIMER_DELIVER_MS\x011000\x02TIMER_DEL_UNIQKEY\x01k\x02",
    ),
    send("of a type its topic is not for", topic="Fifo"),
    send("of a delay to a topic of another type", topic="Fifo", properties="UNIQ_KEY\x01K\x02DELAY\x011\x02"),
    send("of a batch that is none", batch="true", said="no"),
    send("of a batch to a retry topic", batch="true", topic=f"%RETRY%{GROUP}"),
    send("of half a message with a delay", properties="UNIQ_KEY\x01K\x02TRAN_MSG\x01true\x02DELAY\x011\x02"),
    send("of a retried message of an unknown group", topic="%RETRY%Nobody", reconsumeTimes="3"),
    send("without a unique key", properties=""),
    # Pulls
    pull("by an unknown group", consumerGroup="Nobody"),
    pull("of an unknown topic", topic="Unknown"),
    pull("of a queue that is not there", queueId="99"),
    pull("beyond the end", queueOffset="99"),
    pull("of a negative offset", queueOffset="-5"),
    pull("of a topic without read permission", topic="WriteOnly"),
    pull("by a disabled group", consumerGroup="Disabled"),
    pull("with a bad expression", expressionType="SQL92", subscription="a >"),
    pull("with an unknown kind of expression", expressionType="REGEX", subscription="a"),
    pull("of what nobody subscribes to", sysFlag="0"),
    # Topics
    create("blank", topic=" "),
    create("illegal", topic="a b"),
    create("long", topic="t" * 128),
    create("of the system", topic="SCHEDULE_TOPIC_XXXX"),
    create("with the system's prefix", topic="rmq_sys_mine"),
    create("mixed", attributes="+message.type=MIXED"),
    create("with an unknown attribute", topic="N1", attributes="+nothing=1"),
    create("with a value that is not allowed", said="no", topic="N2", attributes="+queue.type=Odd"),
    create("with a deletion at once", topic="N3", attributes="-message.type"),
    create("with a wrong format", topic="N4", attributes="queue.type=SimpleCQ"),
    create("for compaction", topic="N5", attributes="+cleanup.policy=COMPACTION", said="no"),
    create("changed in what is unchangeable", topic="Fifo", attributes="+queue.type=BatchCQ"),
    Case("delete a blank topic", 215, {"topic": " "}),
    Case("delete a topic of the system", 215, {"topic": "SCHEDULE_TOPIC_XXXX"}),
    Case("delete an unknown topic", 215, {"topic": "Unknown"}),
    Case("configuration of an unknown topic", 351, {"topic": "Unknown"}),
    Case("extent of an unknown topic", 202, {"topic": "Unknown"}),
    # Groups
    group("with attributes", {"groupName": "Odd", "attributes": {"+a": "b"}}),
    group("of an illegal name", {"groupName": "a b"}),
    group("of no queues", {"groupName": "NoRetries", "retryQueueNums": 0}),
    group("of a retry policy", {"groupName": "Patient", "groupRetryPolicy": {"type": "CUSTOMIZED"}}),
    Case("configuration of an unknown group", 352, {"group": "Nobody"}),
    Case("members of an unknown group", 38, {"consumerGroup": "Nobody"}),
    Case("connections of an unknown group", 203, {"consumerGroup": "Nobody"}),
    Case("connections of an unknown producer group", 204, {"producerGroup": "Nobody", "topic": TOPIC}),
    Case("delete an unknown group", 207, {"groupName": "Nobody", "cleanOffset": "true"}),
    Case("forbid an unknown group", 353, {"group": "Nobody", "topic": TOPIC, "readable": "false"}),
    Case("running info of an unknown group", 307, {"consumerGroup": "Nobody", "clientId": "c"}),
    Case("consumption of an unknown group", 208, {"consumerGroup": "Nobody", "topic": TOPIC}),
    # Giving back
    back("of an unknown group", group="Nobody"),
    back("of an offset that is none", offset="77777777"),
    back("of a negative offset", offset="-1"),
    # Offsets
    at("commit of an unknown group", 15, consumerGroup="Nobody", commitOffset="1"),
    at("commit to an unknown topic", 15, topic="Unknown", commitOffset="1"),
    at("query of an unknown group", 14, consumerGroup="Nobody"),
    at("query where zero is no answer", 14, setZeroIfNotFound="false"),
    at("query of an unknown topic", 14, topic="Unknown"),
    at("search in an unknown topic", 29, topic="Unknown", timestamp="0"),
    at("most of an unknown topic", 30, topic="Unknown"),
    at("least of an unknown topic", 31, topic="Unknown"),
    at("earliest of an unknown topic", 32, topic="Unknown"),
    at("reset of an unknown topic", 222, topic="Unknown", group=GROUP, timestamp="0", isForce="true"),
    at("clone to an unknown group", 314, srcGroup="Nobody", destGroup="Nobody2", offline="true"),
    # Messages
    Case("query of an unknown topic", 12, {
        "topic": "Unknown", "key": "k", "maxNum": "1", "beginTimestamp": "0", "endTimestamp": "9",
    }),
    Case("view of an offset that is none", 33, {"offset": "77777777"}),
    Case("view of a negative offset", 33, {"offset": "-1"}),
    Case("end of no transaction", 37, {
        "producerGroup": "PG", "tranStateTableOffset": "0", "commitLogOffset": "77777777", "commitOrRollback": "8",
        "fromTransactionCheck": "false", "msgId": "m", "transactionId": "t",
    }),
    # Headers and bodies that are not what they should be
    Case("send without a topic", 10, {"producerGroup": "PG"}, b"body", is_said=False),
    Case("pull without an offset", 11, {"consumerGroup": GROUP, "topic": TOPIC, "queueId": "0"}, is_said=False),
    Case("pull of a queue that is no number", 11, {**pull("").fields, "queueId": "x"}, is_said=False),
    Case("heartbeat that is no JSON", 34, {}, b"{", is_said=False),
    Case("lock that is no JSON", 41, {}, b"[", is_said=False),
    Case("group that is no JSON", 200, {}, b"{", is_said=False),
    # The protocol itself
    Case("an unknown code", 9_999, {}),
    Case("a name server's code", 105, {"topic": TOPIC}),
]  # fmt: skip

# Answered otherwise on purpose: case -> why.
DELIBERATE: dict[str, str] = {
    "send to a topic without write permission": "RocketMQ leaves it to the route that clients get",
    "send of no body": "RocketMQ meets a NullPointerException",
    "send with a delay that is no number": "RocketMQ meets a NumberFormatException",
    "send of a batch that is none": "RocketMQ meets a BufferUnderflowException",
    "create group of an illegal name": "RocketMQ makes a group that no consumer can join",
    "forbid an unknown group": "RocketMQ forbids it without a word, and forgets it",
    "send of half a message with a delay": "RocketMQ delays the half message and forgets its topic; no client sends it",
}


@pytest.fixture(scope="module")
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
    """Addresses of Apache RocketMQ's broker and of ours, with the same topics and groups."""
    try:
        maven.apache_classpath()
    except maven.JavaMissingError as missing:
        pytest.skip(f"refusals of Apache RocketMQ: {missing}")
    root = tmp_path_factory.mktemp("refusals")
    with (
        ApacheCluster(root / "theirs", properties=_SETTINGS) as theirs,
        SprocketCluster(root / "ours", properties=_SETTINGS) as ours,
    ):
        addresses = theirs.brokers[0].address, ours.brokers[0].address
        for address in addresses:
            prepare(address)
        yield addresses


def prepare(address: str) -> None:
    for each in (
        create("", topic=TOPIC),
        create("", topic="Fifo", attributes="+message.type=FIFO"),
        create("", topic="ReadOnly", perm="4"),
        create("", topic="WriteOnly", perm="2"),
        group("", {"groupName": GROUP}),
        group("", {"groupName": "Disabled", "consumeEnable": False}),
    ):
        answer = wire.invoke(address, each.code, each.fields, each.body)
        assert answer.code == 0, answer


def ask(address: str, case: Case) -> tuple[int, str]:
    answer = wire.invoke(address, case.code, case.fields, case.body)
    return answer.code, plain(answer.remark or "")


def plain(remark: str) -> str:
    """The remark without addresses and names of codes, and without the link or the stack that some end with."""
    remark = re.sub(r"/?\d+\.\d+\.\d+\.\d+(:\d+)?", "ADDRESS", remark)
    remark = re.sub(r"^java\.lang\.RuntimeException: (.*), org\.apache\..*$", r"\1", remark)
    remark = re.sub(r" \([A-Z_]+\)", "", remark)
    return re.split(r"\n\s*at |\nSee http|\s*For more information", remark)[0].strip()


@pytest.mark.java
@pytest.mark.timeout(180)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_both_refuse_alike(brokers: tuple[str, str], case: Case) -> None:
    theirs, ours = ask(brokers[0], case), ask(brokers[1], case)
    if case.name in DELIBERATE:
        assert theirs[0] != ours[0], f"both answer {theirs}: take it off the list"
        return
    assert ours[0] == theirs[0], (theirs, ours)
    if case.is_said:
        assert ours[1].startswith(theirs[1]), "more may be said, and nothing else"
