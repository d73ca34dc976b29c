"""The compiled kernel of sends gives what the handler gives: log, queues, responses, errors and counts."""

import asyncio
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from broker.config.broker_config import BrokerRole
from sprocket.common.errors import DiskFailed, DiskFull
from sprocket.engine.choice import native
from sprocket.remoting.channel import RemotingChannel
from sprocket.remoting.command import ReceivedResponse
from sprocket.remoting.frames import encode_request
from sprocket.remoting.framing import JSON, ROCKETMQ, FrameDecoder
from sprocket.remoting.headers.base import to_ext_fields
from sprocket.remoting.headers.send import SendMessageRequestHeader
from sprocket.remoting.routes import open_frame
from tests.fuzz.mutation import damaged
from tests.fuzz.target import pieces_of
from tests.fuzz.twins.send_targets import (
    DELAYED,
    KINDS,
    NEARLY,
    PLAIN,
    PROPERTIES,
    Output,
    Twin,
    compare_sends,
    compare_turns,
    compiled,
    path_of,
    send_of,
    send_twins,
    turns_of,
)
from tests.send_headers import send_header
from tests.sim.sim_disk import Fault
from tests.tiers import is_quick, seeds

pytestmark = pytest.mark.skipif(compiled is None, reason="the compiled engine is not built")


def plain(count: int, serialization: int = JSON, body_bytes: int = 100, properties: str = PLAIN) -> bytes:
    """A read of plain sends to four queues."""
    return b"".join(
        encode_request(
            310, n, send_header(queue_id=n % 4, properties=properties), body_bytes, serialization=serialization
        )
        + bytes(body_bytes)
        for n in range(count)
    )


def appended_compiled(pieces: list[bytes], **settings: bool) -> int:
    """Return how many sends of a second connection the kernel served."""
    twin = Twin(True, sync_flush=False, **settings)
    twin.serve([plain(4)])
    counts = []
    append = twin.store.append_encoded
    with patch.object(twin.store, "append_encoded", lambda records: (counts.append(len(records)), append(records))[1]):
        twin.serve(pieces)
    return sum(counts)


@pytest.mark.parametrize("seed", seeds(100, quick=4))
def test_any_sends_and_any_bytes(seed: int) -> None:
    send_twins(random.Random(seed).randbytes(seed % 9))


@pytest.mark.parametrize("seed", seeds(40))
def test_damaged_frames_in_any_pieces(seed: int) -> None:
    chance = random.Random(seed)
    stream = damaged(b"".join(send_of(chance, 0.8) for _ in range(6)), chance)
    compare_sends([plain(4), *pieces_of(stream)], sync_flush=False)
    compare_sends([plain(4), stream[: chance.randrange(len(stream))]], sync_flush=False)


@pytest.mark.parametrize("serialization", [JSON, ROCKETMQ])
def test_every_kind_of_properties_after_plain_sends(serialization: int) -> None:
    for properties in PROPERTIES:
        odd = plain(1, serialization, properties=properties) if properties or serialization == JSON else b""
        compare_sends([plain(17, serialization) + odd + plain(3, serialization)], sync_flush=False)


@pytest.mark.parametrize("serialization", [JSON, ROCKETMQ])
def test_the_kernel_serves_plain_sends(serialization: int) -> None:
    assert appended_compiled([plain(64, serialization), plain(1, serialization)]) == 65
    assert appended_compiled([plain(3, properties=PLAIN + "a\x01DELAY\x02")]) == 3


@pytest.mark.parametrize("size", [3, 8, 32])
def test_a_key_for_the_kernel_has_letters_and_digits_alone(size: int) -> None:
    """The kernel looks at eight characters at a time."""
    # The end of a segment would be the handler's.
    twin = Twin(True, sync_flush=False, segment_bytes=1 << 20)
    twin.serve([plain(4)])
    for place in (0, size // 2, size - 1):
        # In the first tier, those on both sides of each end of digits and letters.
        for character in "\0\x01/09:@AZ[`az{\x7fé" if is_quick() else map(chr, (*range(128), 0xE9)):
            key = "Z" * place + character + "0" * (size - place - 1)
            is_served = character.isascii() and character.isalnum()
            found = sum(appends_of(twin, [[(0, plain(1, properties=f"UNIQ_KEY\x01{key}\x02"))]]))
            assert found == is_served, (place, character)


@pytest.mark.parametrize("serialization", [JSON, ROCKETMQ])
@pytest.mark.parametrize("flag", [0, 4, 8, 0xC])
def test_half_and_timed_messages_are_stored_as_by_the_handler(serialization: int, flag: int) -> None:
    def read(properties: str, count: int, body_bytes: int = 100) -> bytes:
        return b"".join(
            encode_request(
                310, n, send_header(queue_id=n % 4, properties=properties, sys_flag=flag), body_bytes,
                serialization=serialization,
            ) + bytes(body_bytes)
            for n in range(count)
        )  # fmt: skip

    for rest in (*KINDS, *NEARLY):
        compare_sends([read(PLAIN + rest, 18), read(PLAIN + rest.removesuffix("\x02"), 1, 2000)], sync_flush=False)
    mixed = b"".join(read(PLAIN + rest, 2) for rest in KINDS)
    compare_sends([mixed, mixed + mixed], sync_flush=True)


@pytest.mark.parametrize("properties", KINDS)
def test_the_kernel_serves_half_and_timed_messages(properties: str) -> None:
    twin = Twin(True, sync_flush=False)
    twin.serve([plain(4, properties=PLAIN + properties)])
    assert appends_of(twin, [[(0, plain(64, properties=PLAIN + properties))]]) == [64]


def test_a_slot_that_may_refuse_is_left_to_the_handler() -> None:
    properties = PLAIN + "TIMER_DELAY_MS\x015000\x02"
    counts = []
    for full in (0, 1 << 31):
        twin = Twin(True, sync_flush=False, messages_at=full)
        twin.serve([plain(4), plain(4, properties=properties)])
        counts.append(sum(appends_of(twin, [[(0, plain(20, properties=properties))]])))
    assert counts == [20, 0]


def test_delays_are_counted_as_by_the_handler() -> None:
    found = []
    for is_native in (False, True):
        twin = Twin(is_native, sync_flush=False)
        for delay_s in (1, 30, 4000):
            twin.serve([plain(20, properties=f"{PLAIN}TIMER_DELAY_SEC\x01{delay_s}\x02")])
        found.append([(labels, one.counts, one.total) for labels, one in twin.timer.delays.read()])
    assert found[0] == found[1]
    assert found[0][0][1][0] == 40


def test_the_kernel_takes_the_sends_before_the_first_one_for_the_handler() -> None:
    for count in (1, 20):
        read = plain(count) + plain(1, properties=DELAYED) + plain(5)
        assert appended_compiled([read]) == count
        compare_sends([plain(4), read], sync_flush=False)


def test_the_end_of_a_segment_is_left_to_the_handler() -> None:
    compare_sends([plain(40, body_bytes=700)] * 4, sync_flush=False)
    # Segments of 32 KiB: the read that reaches the end of one goes on with the handler.
    assert 60 < appended_compiled([plain(40, body_bytes=700)] * 4) < 160


def test_without_seals_the_handler_serves_every_send() -> None:
    assert appended_compiled([plain(20)], enabled_append_prop_crc=False) == 0
    compare_sends([plain(20)], sync_flush=False, enabled_append_prop_crc=False)


@pytest.mark.parametrize("name", ["commitlog", "consumequeue"])
@pytest.mark.parametrize("error", [DiskFull, DiskFailed])
def test_a_failed_write_stores_and_acknowledges_nothing(error: type[DiskFull] | type[DiskFailed], name: str) -> None:
    """Also when part of the write has arrived; a disk that has space again takes the next sends."""
    found = []
    for is_native in (False, True):
        twin = Twin(is_native, sync_flush=False)
        twin.serve([plain(8)])
        before = twin.state()[1:4]

        def fault(kind: str, path: Path) -> Fault | None:
            return Fault(error, 0.5) if kind == "write" and name in path.parts else None

        twin.disk.fault = fault
        refused = twin.serve([plain(20)])
        twin.disk.fault = None
        assert twin.state()[1:4] == before
        assert len(refused[0]) == 20 and not any(b'"code":0,' in header for _, header, _ in refused[0])
        found.append([refused, twin.serve([plain(20)]), twin.store.failure is not None])
    assert found[0] == found[1]


def test_a_failed_write_refuses_each_send_of_a_read_with_two_codes() -> None:
    """The second part of the read does not begin with its first frame."""
    header = send_header(properties=PLAIN)
    values = {name: getattr(header, name) for name in SendMessageRequestHeader.__struct_fields__}
    first = encode_request(10, 100, SendMessageRequestHeader(**values), 4) + b"body"
    found = []
    for is_native in (False, True):
        twin = Twin(is_native, sync_flush=False)
        twin.serve([plain(8) + first])
        twin.disk.fault = lambda kind, path: Fault(DiskFull) if kind == "write" else None
        found.append(twin.serve([first + plain(20)]))
    assert found[0] == found[1]
    refused = [open_frame(frame) for frame in found[0][0]]
    assert sorted(one.opaque for one in refused if isinstance(one, ReceivedResponse) and one.code) == [*range(20), 100]


def test_sync_flush_answers_after_the_flush_and_refuses_if_it_fails() -> None:
    compare_sends([plain(20)], sync_flush=True)
    found = []
    for is_native in (False, True):
        twin = Twin(is_native, sync_flush=True)
        twin.serve([plain(4)])
        twin.disk.fault = lambda kind, path: Fault() if kind == "sync" else None
        found.append(twin.serve([plain(20)]))
    assert found[0] == found[1]
    answers = found[0][0]
    assert len(answers) == 20 and not any(b'"code":0,' in header for _, header, _ in answers)


def test_a_field_of_every_kind_in_every_place() -> None:
    fields = to_ext_fields(send_header(properties=PLAIN))
    for name in fields:
        for text in ("", "null", "-1", "007"):
            changed = {**fields, name: text}
            compare_sends([plain(1), encode_request(310, 7, changed, 4) + b"body"], sync_flush=False)


# Several connections in one turn of the loop


def appends_of(twin: Twin, turns: list[list[tuple[int, bytes]]]) -> list[int]:
    """Serve the turns; return how many sends each append of the kernel had."""
    counts = []
    append = twin.store.append_encoded
    with patch.object(twin.store, "append_encoded", lambda records: (counts.append(len(records)), append(records))[1]):
        twin.serve_turns(turns)
    return counts


@pytest.mark.parametrize("seed", seeds(80, quick=3))
def test_any_sends_of_several_connections_in_any_turns(seed: int) -> None:
    chance = random.Random(seed)
    compare_turns(turns_of(chance, chance.randbytes(seed % 9)), sync_flush=seed % 3 == 0)


def test_the_reads_of_a_turn_are_one_append() -> None:
    twin = Twin(True, sync_flush=False)
    twin.serve([plain(4)])
    turn = [(name, plain(3)) for name in range(5)]
    assert appends_of(twin, [turn, turn, [(0, plain(2)), (0, plain(1))]]) == [15, 15, 3]


@pytest.mark.parametrize(("missing_bytes", "answers"), [(0, 12), (1, 0)])
def test_a_sync_master_appends_the_reads_of_a_turn_together_and_answers_once_a_slave_has_them(
    missing_bytes: int, answers: int
) -> None:
    twin = Twin(True, sync_flush=False, role=BrokerRole.SYNC_MASTER)
    twin.serve([plain(4)])
    store, append, appended = twin.store, twin.store.append_encoded, []

    def acknowledge(end: int) -> None:
        store.confirmation.replicated(end, end, is_enough=True)

    def append_and_acknowledge(records: Any) -> int:
        appended.append(len(records))
        end = append(records)
        acknowledge(end - missing_bytes)
        return end

    acknowledge(store.wrote_offset)
    with patch.object(store, "append_encoded", append_and_acknowledge):
        outputs = twin.serve_turns([[(name, plain(12)) for name in range(3)]])[0]
    assert appended == [36]
    assert [len(frames) for frames, _ in outputs] == [answers] * 3


@pytest.mark.parametrize("is_native", [False, True])
@pytest.mark.parametrize(("is_enough", "code"), [(True, b'"code":0,'), (False, b'"code":11,')])
def test_responses_prepared_as_success_are_not_sent_if_no_slave_has_the_messages(
    is_native: bool, is_enough: bool, code: bytes
) -> None:
    twin = Twin(is_native, sync_flush=False, role=BrokerRole.SYNC_MASTER)
    twin.serve([plain(4)])
    twin.store.confirmation.replicated(twin.store.wrote_offset, twin.store.wrote_offset, is_enough=True)

    async def run() -> bytes:
        output = Output()
        channel = RemotingChannel(twin.table, twin.counters)
        channel.connection_made(output)
        channel.data_received(plain(20))
        await asyncio.sleep(0)  # the append is at the end of the turn
        assert output.written == []
        acknowledged = twin.store.wrote_offset if is_enough else -1
        twin.store.confirmation.replicated(twin.store.wrote_offset, acknowledged, is_enough=is_enough)
        await asyncio.sleep(0)
        return b"".join(output.written)

    with path_of(is_native):
        frames = FrameDecoder().feed(asyncio.run(run()))
    assert len(frames) == 20 and all(code in header for _, header, _ in frames)


def test_responses_to_several_appends_that_become_safe_together_are_one_write() -> None:
    twin = Twin(True, sync_flush=False, role=BrokerRole.SYNC_MASTER)
    twin.serve([plain(4)])
    store = twin.store

    def acknowledge() -> None:
        store.confirmation.replicated(store.wrote_offset, store.wrote_offset, is_enough=True)

    async def run() -> None:
        output = Output()
        channel = RemotingChannel(twin.table, twin.counters)
        channel.connection_made(output)
        for appends in (1, 3, 1):
            output.written.clear()
            for _ in range(appends):
                channel.data_received(plain(2))
                await asyncio.sleep(0)  # the append is at the end of the turn
            acknowledge()
            # Without a turn of the loop.
            assert len(output.written) == 1
            assert len(FrameDecoder().feed(output.written[0])) == 2 * appends

    acknowledge()
    with path_of(True):
        asyncio.run(run())


def test_the_reads_of_one_connection_alone_are_appended_at_once() -> None:
    twin = Twin(True, sync_flush=False)
    twin.serve([plain(4)])
    assert appends_of(twin, [[(0, plain(3))], [(0, plain(2)), (0, plain(1))]]) == [3, 2, 1]


def test_another_request_does_not_overtake_sends_that_wait_for_the_end_of_the_turn() -> None:
    odd = plain(1, properties=DELAYED)
    turns = [[(0, plain(3)), (1, plain(2)), (0, odd), (1, plain(1)), (2, odd + plain(2))]]
    compare_turns(turns, sync_flush=False)
    twin = Twin(True, sync_flush=False)
    twin.serve([plain(4)])
    assert appends_of(twin, turns) == [5, 1]


def test_a_turn_has_no_append_without_bound() -> None:
    turns = [[(name, plain(400, body_bytes=10)) for name in range(12)]]
    twin = Twin(True, sync_flush=False, segment_bytes=1 << 24)
    twin.serve([plain(4)])
    counts = appends_of(twin, turns)
    assert sum(counts) == 4800
    assert len(counts) == 2


def test_the_end_of_a_segment_within_a_turn() -> None:
    compare_turns([[(name, plain(13, body_bytes=700)) for name in range(3)]] * 4, sync_flush=False)


@pytest.mark.parametrize("error", [DiskFull, DiskFailed])
def test_a_failed_write_refuses_all_sends_of_the_turn(error: type[DiskFull] | type[DiskFailed]) -> None:
    twin = Twin(True, sync_flush=False)
    twin.serve([plain(8)])
    before = twin.state()[1:4]
    faults = [Fault(error, 0.5)]
    twin.disk.fault = lambda kind, path: faults.pop() if kind == "write" and faults else None
    turn = [(name, plain(5)) for name in range(3)]
    refused = twin.serve_turns([turn])
    assert twin.state()[1:4] == before
    for answers, _ in refused[0]:
        assert len(answers) == 5
        assert not any(b'"code":0,' in header for _, header, _ in answers)
    answered = twin.serve_turns([turn])
    for answers, _ in answered[0]:
        assert len(answers) == 5
        assert all((b'"code":0,' in header) is (error is DiskFull) for _, header, _ in answers)


def served_within_a_turn(twin: Twin, between: Callable[[RemotingChannel], None]) -> list[bytes]:
    """Return what two connections got before the turn ended: each has a read, then `between` gets the first of them."""

    async def run() -> list[bytes]:
        outputs = [Output(), Output()]
        channels = [RemotingChannel(twin.table, twin.counters) for _ in outputs]
        for channel, output in zip(channels, outputs, strict=True):
            channel.connection_made(output)
            channel.data_received(plain(3))
        assert not outputs[0].written
        between(channels[0])
        written = [b"".join(output.written) for output in outputs]
        await asyncio.sleep(0)
        return written

    return asyncio.run(run())


@pytest.mark.skipif(
    native("broker.send.kernel_native") is None, reason="SPROCKET_ENGINE=python makes responses elsewhere"
)
@pytest.mark.parametrize("name", ["eof_received", "close", "hold"])
def test_the_end_of_a_connection_ends_the_wait_for_the_turn(name: str) -> None:
    twin = Twin(True, sync_flush=False)
    twin.serve([plain(4)])
    written = served_within_a_turn(twin, lambda channel: getattr(channel, name)())
    assert [content.count(b'"code":0,') for content in written] == [3, 3]


def test_sends_of_a_turn_whose_queues_were_deleted_meanwhile_go_to_new_queues() -> None:
    twin = Twin(True, sync_flush=False)
    twin.serve([plain(4)])

    def delete(channel: RemotingChannel) -> None:
        twin.store.delete_topic("Orders")
        twin.table.settle()

    written = served_within_a_turn(twin, delete)
    # The handler serves them: its responses leave at the end of the turn.
    assert written == [b"", b""]
    assert [twin.store.max_offset("Orders", queue_id) for queue_id in range(4)] == [2, 2, 2, 0]


def test_another_append_between_the_read_and_the_end_of_the_turn() -> None:
    twin = Twin(True, sync_flush=False)
    twin.serve([plain(4)])
    before = [twin.store.max_offset("Orders", queue_id) for queue_id in range(4)]

    def fill(channel: RemotingChannel) -> None:
        # The rest of the segment of 32 KiB, so that the sends of the turn do not fit into it.
        for _ in range(100):
            twin.processor.send(twin_requests(twin, channel))

    served_within_a_turn(twin, fill)
    after = [twin.store.max_offset("Orders", queue_id) for queue_id in range(4)]
    assert sum(after) - sum(before) == 100 * 4 + 2 * 3


def twin_requests(twin: Twin, channel: RemotingChannel) -> list[Any]:
    """The requests of four sends."""
    requests = []
    for frame in FrameDecoder().feed(plain(4)):
        _, request = twin.table.decode(frame)
        request.channel = channel
        requests.append(request)
    return requests
