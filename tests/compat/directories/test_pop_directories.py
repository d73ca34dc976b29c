"""Popped messages change hands: what was not acknowledged at Apache RocketMQ's broker comes again from ours over its
directory, and the reverse; what was acknowledged, here or there, does not.

``data/apache-pop-5.3.3.tar.xz`` is what Apache RocketMQ's broker left after `leave`; it was made by
``python -m tests.compat.directories.make_pop_directory``.
"""

import json
import re
import tarfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from sprocket.remoting.message.pop_extra_info import PopHandle, parse_handle, parse_start_offsets, queue_key
from sprocket.remoting.message.properties import POP_CK, parse
from store.record.record import Record, decode
from tests.compat import maven, wire
from tests.compat.cluster import Cluster, SprocketCluster
from tests.compat.directories.turns import ApacheBroker, properties

POP_MESSAGE, ACK_MESSAGE = 200050, 200051
TOPIC, GROUP, QUEUES, MESSAGES = "Parcels", "Couriers", 2, 24
_RETRY = f"%RETRY%{GROUP}_{TOPIC}"
# Popped in order.
LINE, LINE_MESSAGES = "Line", 3
GOLDEN = Path(__file__).resolve().parents[1] / "data" / "apache-pop-5.3.3.tar.xz"
_INVISIBLE_MS = 15_000
# What is left of that for an acknowledgement at the second broker to count for sure.
_MARGIN_MS = 2_000
# Both brokers look for messages to redeliver every few seconds.
_LATEST_S = 30.0
_QUIET_S = 4.0


@pytest.fixture
def java() -> None:
    try:
        maven.apache_classpath()
    except maven.JavaMissingError as missing:
        pytest.skip(f"pops of Apache RocketMQ: {missing}")


@dataclass(frozen=True)
class Popped:
    """One message and what acknowledges it."""

    body: str
    queue_id: int
    queue_offset: int
    handle: PopHandle

    @property
    def visible_ms(self) -> int:
        return self.handle.pop_time_ms + self.handle.invisible_ms


def settings_at(store: Path) -> dict[str, str]:
    return {**properties(store), "mappedFileSizeTimerLog": "102400"}


def send(address: str, topic: str, queues: int, count: int) -> list[str]:
    """Fill the topic; the bodies."""
    bodies = [f"{topic}-{number}" for number in range(count)]
    for number, body in enumerate(bodies):
        fields = {
            "a": "Senders", "b": topic, "c": "TBW102", "d": "4", "e": str(number % queues), "f": "0",
            "g": str(int(time.time() * 1000)), "h": "0", "i": f"UNIQ_KEY\x01{body}\x02TAGS\x01Blue\x02", "j": "0",
            "k": "false", "l": "16", "m": "false",
        }  # fmt: skip
        answer = wire.invoke(address, wire.SEND_MESSAGE_V2, fields, body.encode())
        assert answer.code == 0, answer.remark
    return bodies


def ask_pop(address: str, topic: str, queue_id: int, invisible_ms: int, order: str) -> wire.Response:
    fields = {
        "consumerGroup": GROUP, "topic": topic, "queueId": str(queue_id), "maxMsgNums": "5",
        "invisibleTime": str(invisible_ms), "pollTime": "0", "bornTime": str(int(time.time() * 1000)),
        "initMode": "0", "expType": "TAG", "exp": "*", "order": order,
    }  # fmt: skip
    return wire.invoke(address, POP_MESSAGE, fields)


def pop(address: str, invisible_ms: int) -> list[Popped]:
    """One pop of any queue."""
    answer = ask_pop(address, TOPIC, -1, invisible_ms, "false")
    return list(messages(answer)) if answer.code == 0 else []


def pop_line(address: str, invisible_ms: int) -> tuple[list[Popped], str]:
    """One pop in order, and what its answer says of earlier ones."""
    answer = ask_pop(address, LINE, 0, invisible_ms, "true")
    assert answer.code == 0, answer.remark
    return list(messages(answer)), answer.fields.get("orderCountInfo", "")


def messages(answer: wire.Response) -> Iterator[Popped]:
    """The messages of a pop's answer; of the topic itself they bring no handle, their receiver makes it."""
    starts = parse_start_offsets(answer.fields["startOffsetInfo"])
    view, at = memoryview(answer.body), 0
    while at < len(view):
        size = int.from_bytes(view[at : at + 4], "big")
        record = decode(view[at : at + size])
        assert isinstance(record, Record), record
        at += size
        text = parse(bytes(record.properties).decode()).get(POP_CK)
        if text is not None:
            handle = parse_handle(text)
        else:
            first = starts[queue_key("0", record.queue_id)]
            handle = PopHandle(
                first, int(answer.fields["popTime"]), int(answer.fields["invisibleTime"]),
                int(answer.fields["reviveQid"]), "0", "", record.queue_id, record.queue_offset,
            )  # fmt: skip
        yield Popped(bytes(record.body).decode(), record.queue_id, record.queue_offset, handle)


def ack(cluster: Cluster, message: Popped, topic: str = TOPIC) -> None:
    handle = message.handle
    if not handle.broker_name:
        handle = handle._replace(broker_name=cluster.brokers[0].name)
    fields = {
        "consumerGroup": GROUP, "topic": topic if handle.retry == "0" else _RETRY, "queueId": str(message.queue_id),
        "extraInfo": handle.encode(), "offset": str(message.queue_offset),
    }  # fmt: skip
    answer = wire.invoke(cluster.brokers[0].address, ACK_MESSAGE, fields)
    assert answer.code == 0, answer.remark


def take_all(address: str) -> list[Popped]:
    taken: list[Popped] = []
    deadline = time.monotonic() + _LATEST_S
    while len(taken) < MESSAGES:
        taken += pop(address, _INVISIBLE_MS)
        assert time.monotonic() < deadline, f"{len(taken)} of {MESSAGES}"
    return taken


def take_what_comes(cluster: Cluster, wanted: set[str], until_ms: int) -> list[str]:
    """Pop until `wanted` have come and nothing comes any more; acknowledge what comes."""
    came: list[str] = []
    deadline = until_ms / 1000 - time.time() + time.monotonic() + _LATEST_S
    quiet_since = time.monotonic()
    while time.monotonic() - quiet_since < _QUIET_S or (wanted - set(came) and time.monotonic() < deadline):
        for message in pop(cluster.brokers[0].address, 60_000):
            came.append(message.body)
            ack(cluster, message)
            quiet_since = time.monotonic()
        time.sleep(0.1)
    return came


def leave(cluster: Cluster) -> list[Popped]:
    """Pop everything and acknowledge every third; of what is popped in order, the first."""
    address = cluster.brokers[0].address
    for topic, queues in ((TOPIC, QUEUES), (LINE, 1)):
        wire.create_topic(address, topic, queues)
    send(address, LINE, 1, LINE_MESSAGES)
    first, _ = pop_line(address, _INVISIBLE_MS)
    assert [message.queue_offset for message in first] == list(range(LINE_MESSAGES))
    ack(cluster, first[0], LINE)
    sent = send(address, TOPIC, QUEUES, MESSAGES)
    popped = take_all(address)
    assert sorted(message.body for message in popped) == sorted(sent)
    for message in popped[::3]:
        ack(cluster, message)
    return popped


def check(cluster: Cluster, popped: list[Popped]) -> None:
    """Check that what `leave` left is redelivered, and nothing else."""
    acknowledged = {message.body for message in popped[::3]}
    # With the handle of the broker before.
    for message in popped[1::6]:
        if message.visible_ms - time.time() * 1000 > _MARGIN_MS:
            ack(cluster, message)
            acknowledged.add(message.body)
    wanted = {message.body for message in popped} - acknowledged
    came = take_what_comes(cluster, wanted, max(message.visible_ms for message in popped))
    assert sorted(came) == sorted(wanted)
    again, counts = pop_line(cluster.brokers[0].address, _INVISIBLE_MS)
    assert [message.queue_offset for message in again] == [1, 2]
    assert sorted(counts.split(";")) == ["0 0 1", "0 qo0%1 1", "0 qo0%2 1"]


def keep_order_info(file: Path) -> None:
    """Make the last pops in order recent: brokers forget an ordered pop 24 hours after it, and the file is older."""
    text = file.read_text()
    assert '"l":' in text
    file.write_text(re.sub(r'"l":\d+', f'"l":{int(time.time() * 1000)}', text))


@pytest.mark.timeout(300)
def test_what_apache_left_is_redelivered_by_ours(tmp_path: Path) -> None:
    with tarfile.open(GOLDEN) as archive:
        archive.extractall(tmp_path, filter="data")
    keep_order_info(tmp_path / "store" / "config" / "consumerOrderInfo.json")
    fields = json.loads((tmp_path / "popped.json").read_text())
    left = [Popped(body, queue, offset, PopHandle(*handle)) for body, queue, offset, handle in fields]
    with SprocketCluster(tmp_path / "servers", properties=settings_at(tmp_path / "store")) as cluster:
        check(cluster, left)


@pytest.mark.java
@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("first", "second"),
    [(ApacheBroker, SprocketCluster), (SprocketCluster, ApacheBroker)],
    ids=["to-ours", "to-theirs"],
)
def test_what_is_not_acknowledged_is_redelivered_by_the_other_broker(
    java: None, tmp_path: Path, first: type[Cluster], second: type[Cluster]
) -> None:
    settings = settings_at(tmp_path / "store")
    with first(tmp_path / "first", properties=settings) as cluster:
        popped = leave(cluster)
    with second(tmp_path / "second", properties=settings) as cluster:
        check(cluster, popped)
