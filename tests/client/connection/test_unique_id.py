"""Message ids are built of the parts that Java's `MessageClientIDSetter` reads out of them."""

import random
from datetime import datetime

import pytest

from sprocket.client.connection.unique_id import month_bounds_ms, unique_ids
from sprocket.engine.choice import native
from sprocket.remoting.codec.java_hash import java_hash_code
from tests.client.java_vectors import HASHES
from tests.clock import ManualClock


def test_parts_of_an_id() -> None:
    noon = int(datetime(2024, 5, 2, 12, 0, 0, 7000).timestamp() * 1000)
    new_id = unique_ids(bytes([10, 0, 0, 1]), 0x1A2B3C, b"\xde\xad\xbe\xef", ManualClock(noon))
    since_month = 36 * 3600 * 1000 + 7
    assert new_id() == f"0A0000012B3CDEADBEEF{since_month:08X}0000"
    assert new_id() == f"0A0000012B3CDEADBEEF{since_month:08X}0001"


def test_id_with_an_ipv6_address_has_56_digits() -> None:
    assert len(unique_ids(bytes(16), 1, bytes(4), ManualClock())()) == 56


def test_a_new_month_begins_at_zero_and_a_small_step_back_counts_as_its_start() -> None:
    start = int(datetime(2024, 12, 1).timestamp() * 1000)
    clock = ManualClock(start - 1)
    new_id = unique_ids(bytes(4), 1, bytes(4), clock)
    new_id()
    clock.step_wall(1)
    assert new_id()[20:28] == "00000000"
    clock.step_wall(-500)
    assert new_id()[20:28] == "00000000"


def test_bounds_of_december() -> None:
    start, following = month_bounds_ms(int(datetime(2024, 12, 31, 23).timestamp() * 1000))
    assert datetime.fromtimestamp(start / 1000) == datetime(2024, 12, 1)
    assert datetime.fromtimestamp(following / 1000) == datetime(2025, 1, 1)


def test_ids_are_unique() -> None:
    new_id = unique_ids(bytes(4), 1, bytes(4), ManualClock())
    assert len({new_id() for _ in range(65_536)}) == 65_536


def test_hash_is_that_of_java() -> None:
    assert {text: java_hash_code(text) for text in HASHES} == HASHES


@pytest.mark.skipif(native("sprocket.client.send.sends_native") is None, reason="the compiled engine is not built")
def test_compiled_ids_are_those_of_python() -> None:
    chance = random.Random(1)
    clocks = [ManualClock(1_700_000_000_000), ManualClock(1_700_000_000_000)]
    compiled = unique_ids(bytes(4), 9, b"salt", clocks[0])
    pure = unique_ids(bytes(4), 9, b"salt", clocks[1], None)
    for _ in range(70_000):  # the counter wraps
        assert compiled() == pure()
        if chance.random() < 0.3:
            step = chance.choice((1, -1, -400_000, 40 * 86_400_000))
            for clock in clocks:
                clock.step_wall(step)
