"""Keys of values found in arrays: the same answers as a search in each record alone."""

import random

import numpy as np

from sprocket.remoting.message.properties import find_last
from store.scan.distinct_names import Integers
from store.scan.value_scan import ALONE, ValueScan

NAMES = [b"a\x01", b"quantity\x01", b"a.long.name.of.a.property\x01"]
PIECES = [
    b"a\x01", b"quantity\x01", b"a.long.name.of.a.property\x01", b"\x02", b"\x02", b"7", b"x", b"\0", b"a",
    b"1234567", b"12345678", b"k" * 200, b"\x02a\x011\x02", b"\x02quantity\x0112\x02", b"\x02quantity\x01\x02",
    b"\x02a.long.name.of.a.property\x01123\x02",
]  # fmt: skip


def laid_out(properties: list[bytes], behind: int) -> tuple[memoryview, Integers, Integers]:
    starts = np.cumsum([9, *(len(one) + 3 for one in properties)])[:-1]
    data = bytes(9) + b"".join(one + b"a\x017" for one in properties) + bytes(behind)
    return memoryview(data), starts, starts + [len(one) for one in properties]


def test_equal_keys_have_equal_values() -> None:
    chance = random.Random(7)
    alone = 0
    for behind in (0, 40, 400):
        for name in NAMES:
            properties = [b"".join(chance.choices(PIECES, k=chance.randrange(9))) for _ in range(400)]
            data, starts, ends = laid_out(properties, behind)
            by_key: dict[int, bytes | None] = {}
            for one, key in zip(properties, ValueScan(name).keys(data, starts, ends).tolist(), strict=True):
                if key == int(ALONE):
                    alone += 1
                else:
                    assert by_key.setdefault(key, find_last(one, name)) == find_last(one, name)
            assert len(set(by_key.values())) == len(by_key) > 1
    assert alone < 9 * 400, "some were decided together"


def test_usual_properties_are_not_asked_alone() -> None:
    properties = [b"UNIQ_KEY\x01%032d\x02a\x01%d\x02TAGS\x01x\x02" % (number, number % 7) for number in range(50)]
    data, starts, ends = laid_out(properties, 500)
    keys = ValueScan(b"a\x01").keys(data, starts, ends)
    assert (keys != ALONE).all()
    assert len(set(keys.tolist())) == 7
