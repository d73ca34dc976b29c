"""Messages that wait in the timer wheel change hands with their directory; RocketMQ's own classes read our files."""

import asyncio
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from sprocket.remoting.headers.pull import PullMessageResponseHeader
from store.config.timer_config import SLOTS_TOTAL
from store.message_store import MessageStore
from store.record.record import Record, decode
from store.timer.timer_message_store import TimerMessageStore
from tests.broker.rig import TestClient
from tests.clock import ManualClock
from tests.compat import maven, wire
from tests.compat.cluster import Cluster, SprocketCluster
from tests.compat.directories.turns import ApacheBroker, properties
from tests.store.insides import timer_state_of
from tests.store.rig import Stores
from tests.store.timer.wheel_run import timed

TOPIC = "Alarms"
TOOL = Path(__file__).resolve().parents[1] / "java" / "store" / "TimerTool.java"
_LIMIT_S = 90
_EACH = 20
_LATER_MS = 15_000
_RECALL_MESSAGE = 370
_LOG_FILE_BYTES = 4096


@pytest.fixture
def java() -> None:
    try:
        maven.apache_classpath()
    except maven.JavaMissingError as missing:
        pytest.skip(f"files of Apache RocketMQ: {missing}")


def send(cluster: Cluster, body: str, delay_ms: int) -> str:
    """Send a message that is due after a delay; its recall handle."""
    fields = {
        "a": "Sleepers", "b": TOPIC, "c": "TBW102", "d": "4", "e": "0", "f": "0",
        "g": str(int(time.time() * 1000)), "h": "0", "i": f"UNIQ_KEY\x01{body}\x02TIMER_DELAY_MS\x01{delay_ms}\x02",
        "j": "0", "k": "false", "l": "16", "m": "false",
    }  # fmt: skip
    answer = wire.invoke(cluster.brokers[0].address, wire.SEND_MESSAGE_V2, fields, body.encode())
    assert answer.code == 0, answer.remark
    return answer.fields["recallHandle"]


async def received(cluster: Cluster) -> Counter[str]:
    """How often each message is in the topic."""
    client = TestClient(cluster.brokers[0].address)
    bodies: Counter[str] = Counter()
    offset = 0
    try:
        while (response := await client.pull(TOPIC, 0, offset)).code == 0:
            bodies.update(bytes(record.body).decode() for record in records(response.body))
            offset = response.header(PullMessageResponseHeader).next_begin_offset
    finally:
        await client.close()
    return bodies


def records(body: bytes) -> Iterator[Record]:
    view, at = memoryview(body), 0
    while at < len(view):
        size = int.from_bytes(view[at : at + 4], "big")
        record = decode(view[at : at + size])
        assert isinstance(record, Record), record
        yield record
        at += size


async def await_all(cluster: Cluster, wanted: set[str]) -> Counter[str]:
    deadline = time.monotonic() + _LIMIT_S
    while True:
        came = await received(cluster)
        if wanted <= set(came):
            return came
        assert time.monotonic() < deadline, sorted(wanted - set(came))
        await asyncio.sleep(0.3)


@pytest.mark.java
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("kinds", "ending"),
    [
        ((ApacheBroker, SprocketCluster, ApacheBroker), "kill"),
        pytest.param((SprocketCluster, ApacheBroker, SprocketCluster), "stop", marks=pytest.mark.slow),
    ],
    ids=["theirs-ours-theirs-killed", "ours-theirs-ours-stopped"],
)
async def test_what_waits_changes_hands(
    java: None, tmp_path: Path, kinds: tuple[type[Cluster], ...], ending: str
) -> None:
    settings = properties(tmp_path / "store") | {"mappedFileSizeTimerLog": "102400", "recallMessageEnable": "true"}
    wanted: set[str] = set()
    recalled: set[str] = set()
    for turn, kind in enumerate(kinds):
        with kind(tmp_path / f"turn-{turn}", properties=settings) as cluster:
            address = cluster.brokers[0].address
            if turn == 0:
                wire.create_topic(address, TOPIC, 1)
            # What the turn before left.
            await await_all(cluster, wanted)
            if turn < 2:
                soon = {f"{turn}-soon-{number}" for number in range(_EACH)}
                for body in sorted(soon):
                    send(cluster, body, 2_000)
                later = [f"{turn}-later-{number}" for number in range(_EACH)]
                for number, body in enumerate(later):
                    handle = send(cluster, body, _LATER_MS)
                    if number % 5 == 0:
                        fields = {"producerGroup": "Sleepers", "topic": TOPIC, "recallHandle": handle}
                        assert wire.invoke(address, _RECALL_MESSAGE, fields).code == 0
                        recalled.add(body)
                await await_all(cluster, soon)
                wanted |= soon | set(later) - recalled
                # A killed broker keeps what it has flushed.
                await asyncio.sleep(2.5)
            else:
                came = await received(cluster)
                assert not recalled & set(came)
                most = 1 if ending == "stop" else 2
                assert [body for body, count in came.items() if count > most] == []
            if ending == "kill":
                cluster.brokers[0].kill()


def run_tool(root: Path, from_ms: int, to_ms: int) -> list[str]:
    command = [
        *maven.short_java(), f"-Duser.home={root.parent}", "-cp",
        maven.compiled(TOOL, maven.apache_classpath()), TOOL.stem, str(root),
        str(SLOTS_TOTAL), "1000", str(_LOG_FILE_BYTES), str(from_ms), str(to_ms),
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=_LIMIT_S, check=False)
    assert done.returncode == 0 and "END" in done.stdout, done.stdout + done.stderr
    return [line for line in done.stdout.splitlines() if line.startswith(("ALL ", "SLOT ", "UNIT "))]


def ours(timer: TimerMessageStore, from_ms: int, to_ms: int) -> Iterator[str]:
    """What the tool prints, from our own reading."""
    state = timer_state_of(timer)
    wheel, log = state.wheel, state.log
    yield f"ALL {wheel.count_from(from_ms)}"
    for time_ms in range(from_ms, to_ms, 1000):
        slot = wheel.get(time_ms)
        if slot is None:
            continue
        yield f"SLOT {time_ms} {slot.first} {slot.last} {slot.messages}"
        position = slot.last
        while position != -1:
            unit = log.unit(position)
            assert unit is not None
            fields = (unit.write_ms, unit.delay_ms, unit.physical_offset, unit.record_bytes, unit.topic_hash)
            yield f"UNIT {position} 52 {unit.previous} {unit.magic} {' '.join(map(str, fields))} 0"
            position = unit.previous


def fill(store: MessageStore, clock: ManualClock) -> None:
    """Messages of several slots, of other files of the timer log, one that rolls and one that takes another back."""
    begin = clock.wall_ms() // 1000 * 1000
    store.append([timed(number, begin + 1000 * (1 + number % 7)) for number in range(300)])
    store.append([timed(300, begin + 3000, TIMER_DEL_UNIQKEY="Orders+K2"), timed(301, begin + 5 * 86_400_000)])


@pytest.mark.java
@pytest.mark.timeout(300)
def test_rocketmq_reads_our_wheel_and_log(java: None, tmp_path: Path) -> None:
    stores = Stores(tmp_path / "store")
    stores.fields["mapped_file_size_timer_log"] = _LOG_FILE_BYTES
    store = stores.open()
    timer = TimerMessageStore(store, stores.clock, lambda topic, change: None)
    timer.load()
    fill(store, stores.clock)
    while timer.turn() == 0.0:
        pass
    from_ms = stores.clock.wall_ms() // 1000 * 1000
    to_ms = from_ms + 3 * 86_400_000
    expected = list(ours(timer, from_ms, to_ms))
    assert len(expected) == 1 + 8 + 302
    assert len(list((tmp_path / "store" / "timerlog").iterdir())) == 4
    timer.close()
    store.shutdown()
    assert run_tool(tmp_path / "store", from_ms, to_ms) == expected
