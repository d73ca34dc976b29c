"""Messages for the tests of tables: JSON orders of topic T among others; some do not decode."""

import json
import zlib
from collections.abc import Iterator

from sprocket.remoting.message.record import SysFlag
from tests.spark.store_builder import Row

SCHEMA = "n int, name string"
HOUR_MS = 3_600_000
FIRST_MS = 1_700_000_000_000


def orders(begin: int, end: int, *, bad_every: int = 9, hours: float = 3.0, of: int = 600) -> Iterator[Row]:
    """Rows `begin` to `end`; every third is of another topic, every `bad_every`th of topic T is no order."""
    for n in range(begin, end):
        body = order(n).encode()
        sys_flag = 0
        if n % bad_every == 0:
            body = b"no order"
        elif n % 7 == 0:
            body, sys_flag = zlib.compress(body), int(SysFlag.COMPRESSED)
            if n % 14 == 0:
                body = body[:-6]
        stored = FIRST_MS + round(n * hours * HOUR_MS / of)
        yield Row(
            topic="T" if n % 3 else "Other",
            queue_id=n % 4,
            body=body,
            sys_flag=sys_flag,
            properties={"TAGS": f"t{n % 5}", "KEYS": f"k{n}"},
            store_timestamp=stored,
        )


def order(n: int) -> str:
    return json.dumps({"n": n, "name": f"order {n} " + "x" * (n % 300)})


def is_good(n: int, bad_every: int = 9) -> bool:
    return n % bad_every != 0 and n % 14 != 0
