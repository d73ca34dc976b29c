"""Behind an access gate the kernels give what the handlers and the whole check give."""

import asyncio
import random
from collections.abc import Callable, Iterator
from typing import Any, cast
from unittest.mock import patch

import pytest

from acl.auth.model import UserStatus
from acl.auth.policy import AuthPolicy
from acl.gate import Doorway
from sprocket.engine.choice import ENGINE
from sprocket.remoting.channel import RemotingChannel
from sprocket.remoting.framing import JSON, ROCKETMQ
from sprocket.remoting.routes import RouteTable
from tests.fuzz.target import pieces_of
from tests.fuzz.twins.gate_targets import (
    ALICE,
    BOB,
    NAMED,
    Acker,
    Guard,
    Popper,
    Puller,
    Sender,
    ack,
    acks_of,
    compare,
    passes_of,
    pop,
    pops_of,
    pull,
    pulls_of,
    send,
    sends_of,
)
from tests.fuzz.twins.send_targets import Output, compiled, path_of
from tests.tiers import seeds

pytestmark = pytest.mark.skipif(compiled is None, reason="the compiled engine is not built")

both = pytest.mark.parametrize("serialization", [JSON, ROCKETMQ])


def kinds() -> list[tuple[Any, Callable[..., bytes]]]:
    """Return each path behind a gate, and what makes its requests."""
    return [(Sender(True), send), (Puller(True), pull), (Acker(True), ack), (Popper(True), pop)]


@pytest.mark.parametrize("seed", seeds(50, quick=2))
def test_any_signed_sends_and_changed_accounts(seed: int) -> None:
    chance = random.Random(seed)
    reads = [sends_of(chance, chance.choice((0.7, 0.95, 1.0))) for _ in range(6)]
    compare((Sender(False), Sender(True)), reads, seed)
    compare((Sender(False), Sender(True)), pieces_of(reads[0]))


@pytest.mark.parametrize("seed", seeds(50, quick=2))
def test_any_signed_pulls_and_changed_accounts(seed: int) -> None:
    chance = random.Random(seed)
    compare((Puller(False), Puller(True)), [pulls_of(chance, chance.choice((0.7, 0.95, 1.0))) for _ in range(6)], seed)


@pytest.mark.parametrize("seed", seeds(50, quick=2))
def test_any_signed_acknowledgements_and_changed_accounts(seed: int) -> None:
    chance = random.Random(seed)
    compare((Acker(False), Acker(True)), [acks_of(chance, chance.choice((0.7, 0.95, 1.0))) for _ in range(6)], seed)


@pytest.mark.parametrize("seed", seeds(50, quick=2))
def test_any_signed_pops_and_changed_accounts(seed: int) -> None:
    chance = random.Random(seed)
    compare((Popper(False), Popper(True)), [pops_of(chance, chance.choice((0.7, 0.95, 1.0))) for _ in range(6)], seed)


@both
def test_a_changed_bit_in_a_read_of_signed_sends(serialization: int) -> None:
    """Some change no proof: framing, or what no signature covers."""
    read = b"".join(send(ALICE, n, serialization) for n in range(2))
    twins = Sender(False), Sender(True)
    for at in range(8, len(read), 3):
        changed = bytearray(read)
        changed[at] ^= 1 << at % 8
        compare(twins, [send(ALICE, 0, serialization), bytes(changed)])


@both
def test_usual_signed_sends_are_handled_compiled_from_the_first_pass_on(serialization: int) -> None:
    twin = Sender(True)
    twin.serve([b"".join(send(ALICE, n, serialization) for n in range(4))])
    stored: list[int] = []
    append = twin.store.append_encoded
    with patch.object(twin.store, "append_encoded", lambda group: (stored.append(len(group)), append(group))[1]):
        twin.serve([b"".join(send(ALICE, n, serialization) for n in range(16))] * 2)
        assert sum(stored) == 32
        twin.serve([b"".join(send(BOB, n, serialization) for n in range(16))])
        twin.serve([b"".join(send(None, n, serialization) for n in range(16))])
        assert sum(stored) == 32
    assert twin.guard.gate.refused == 32


@both
def test_usual_signed_pulls_are_handled_compiled(serialization: int) -> None:
    twin = Puller(True)
    reads, counts = twin.store.kernel_reads, []
    found = reads.found
    with patch.object(reads, "found", lambda count, messages: (counts.append(count), found(count, messages))):
        twin.serve([b"".join(pull(ALICE, n, serialization) for n in range(8))])
        assert sum(counts) == 8
        twin.serve([b"".join(pull(BOB, n, serialization) for n in range(8))])
        assert sum(counts) == 8


@pytest.mark.skipif(ENGINE.name == "python", reason="pure Python proves nothing by itself")
def test_no_check_sees_what_a_compiled_call_has_proved() -> None:
    """Each call of `serve` is a connection of its own, whose first request gets the whole check."""
    for twin, one in kinds():
        twin.serve([b"".join(one(ALICE, n) for n in range(4))])
        checked: list[object] = []
        admit = Doorway.admit

        def noting(self: Doorway, frame: Any, channel: Any, admit: Any = admit, checked: Any = checked) -> Any:
            checked.append(frame)
            return admit(self, frame, channel)

        with patch.object(Doorway, "admit", noting):
            twin.table = twin.guard.gate.stand_before(twin.table)
            usual = [b"".join(one(ALICE, n, kind) for n in range(8)) for kind in (JSON, ROCKETMQ)]
            twin.serve([one(ALICE, 0), *usual])
            assert len(checked) == 1
            twin.serve([one(ALICE, 0), one(BOB, 1) + one(ALICE, 2), one(None, 3), one(ALICE, 4)])
            # The first, those of BOB and of nobody, and the one after BOB in its read.
            assert len(checked) == 5
        assert twin.guard.gate.refused == 2


@pytest.mark.parametrize("properties", NAMED)
@both
def test_messages_that_name_topics_get_the_whole_check(serialization: int, properties: str) -> None:
    reads = [send(ALICE, 0, serialization), send(ALICE, 1, serialization, properties=properties) * 20]
    compare((Sender(False), Sender(True)), reads)


@pytest.mark.parametrize(
    "change",
    [
        lambda guard: guard.decide("alice12", "Deny"),
        lambda guard: guard.tables.update_user("alice12", "another", None, None),
        lambda guard: guard.tables.update_user("alice12", None, None, UserStatus.DISABLE),
        lambda guard: guard.tables.delete_user("alice12"),
        lambda guard: guard.gate.replace_policies([]),
    ],
)
def test_a_change_between_two_reads_ends_what_was_proved(change: Callable[[Guard], object]) -> None:
    for twin, one in kinds():

        def changing(guard: Guard = twin.guard, one: Any = one) -> Iterator[bytes]:
            yield one(ALICE, 0)
            yield one(ALICE, 1) * 20
            assert not guard.gate.refused
            change(guard)
            yield one(ALICE, 1) * 20

        twin.serve(cast(Any, changing()))
        assert twin.guard.gate.refused == 20


def test_what_was_proved_at_one_gate_proves_nothing_at_another() -> None:
    """The routes of a connection change: its gate, other users, no gate, and its gate again."""
    twin, strict = Sender(True), Guard()
    strict.decide("alice12", "Deny")
    routes = RouteTable(twin.processor.routes())
    gates = [one.gate for one in (twin.guard, strict)]

    async def run() -> None:
        output = Output()
        channel = RemotingChannel(twin.table, twin.counters)
        channel.connection_made(output)

        async def stored(read: bytes) -> int:
            before = twin.store.max_offset("Orders", 1)
            channel.data_received(read)
            await asyncio.sleep(0)
            return twin.store.max_offset("Orders", 1) - before

        with passes_of(True), path_of(True):
            for _ in range(3):
                assert await stored(send(ALICE, 1)) == 1
            for table, signed, unsigned in (
                (strict.gate.stand_before(routes), 0, 0), (routes, 1, 1), (strict.gate.stand_before(routes), 0, 0),
                (twin.table, 1, 0), (twin.guard.gate.stand_before(routes), 1, 0),
            ):  # fmt: skip
                channel.hold()
                channel.serve(table)
                for _ in range(2):
                    assert await stored(send(ALICE, 1)) == signed
                    assert await stored(send(ALICE, 1) * 20) == 20 * signed
                    assert await stored(send(None, 1)) == unsigned
                    assert await stored(send(None, 1) * 20) == 20 * unsigned

    asyncio.run(run())
    # Of four rounds at the strict gate, all 42 requests; of four at the other, the 21 unsigned ones.
    assert [gate.refused for gate in gates] == [4 * 21, 4 * 42]


def test_with_pure_python_the_gate_checks_each_request() -> None:
    twin = Sender(False)
    with patch.object(AuthPolicy, "check", side_effect=AuthPolicy.check, autospec=True) as check:
        twin.serve([send(ALICE, n) for n in range(5)])
    assert check.call_count == 5
