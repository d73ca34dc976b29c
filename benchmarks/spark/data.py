"""A store of any size, written by the broker's own writer, for the benchmarks of Spark.

Its messages spread over 24 hours of store time: an hour is a twenty-fourth of the log.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from sprocket.common.clock import SystemClock
from store.config.store_config import StoreConfig
from store.message_store import MessageStore
from store.record.record import PendingMessage

MEBIBYTE: Final = 1024 * 1024
HOUR_MS: Final = 3_600_000
BEGIN_MS: Final = 1_700_000_000_000
_HOST: Final = bytes((10, 1, 2, 3)) + (5432).to_bytes(4, "big")
_BATCH: Final = 256
# More than a batch takes: what is written stays within the size that was asked for.
_BATCH_BYTES: Final = MEBIBYTE
_QUEUES: Final = 4
_BODIES: Final = 20_000
_SEGMENT_BYTES: Final = 1024 * MEBIBYTE
# What one message of this data takes in the log, about.
_RECORD_BYTES: Final = 560


@dataclass(frozen=True)
class Data:
    """A store that was written, and what is in it."""

    root: Path
    message_count: int
    size_bytes: int
    topics: int


class _SpreadClock(SystemClock):
    """Says the wall time that the writer sets."""

    now_ms = BEGIN_MS

    def wall_ms(self) -> int:
        """The time of the message that is being written."""
        return self.now_ms


def write_store(root: Path, size_bytes: int, topics: int = 6, segments: int = 4) -> Data:
    """`topics` topics of 4 queues, JSON objects of 150 to 700 bytes, 20 tags, a key each, latencies of 0 to 500 ms.

    It takes `segments` segments, or more where they would exceed 1 GiB.
    """
    clock = _SpreadClock()
    config = StoreConfig(
        store_path_root_dir=root,
        mapped_file_size_commit_log=min(_SEGMENT_BYTES, max(size_bytes // segments, 16 * MEBIBYTE)),
        os_page_cache_busy_time_out_mills=600_000,  # others may use the machine
        disk_space_warning_level_ratio=100,
        clean_file_forcibly_enable=False,
    )
    store = MessageStore(config, clock=clock, notify=lambda run: run())
    store.start()
    generator = np.random.default_rng(1)
    bodies = [_body(generator) for _ in range(_BODIES)]
    latencies = generator.exponential(60, _BODIES).astype(int).tolist()
    expected = size_bytes // _RECORD_BYTES
    count = 0
    while store.wrote_offset < size_bytes - _BATCH_BYTES:
        messages = []
        clock.now_ms = BEGIN_MS + 24 * HOUR_MS * count // expected
        for number in range(count, count + _BATCH):
            latency_ms = min(latencies[number * 31 % _BODIES], 500)
            messages.append(_message(number, bodies[number * 7919 % _BODIES], clock.now_ms - latency_ms, topics))
        store.append(messages)
        count += _BATCH
    store.shutdown()
    return Data(root, count, store.wrote_offset, topics)


def _body(generator: np.random.Generator) -> bytes:
    values = generator.integers(0, 1_000_000, 4).tolist()
    reading = {
        "device": f"sensor-{values[0] % 5000}",
        "temperature": values[1] / 1000,
        "pressure": values[2] / 100,
        "status": "nominal" if values[3] % 10 else "degraded",
        "sequence": values[3],
        "samples": generator.integers(0, 10_000, 5 + values[3] % 80).tolist(),
    }
    return json.dumps(reading).encode()


def _message(number: int, body: bytes, born_ms: int, topics: int) -> PendingMessage:
    tag = number % 20
    properties = f"UNIQ_KEY\x017F0000012A139A0C{number:016X}\x02KEYS\x01key-{number}\x02TAGS\x01tag-{tag}\x02"
    return PendingMessage(
        f"topic-{number % topics}", number // topics % _QUEUES, body, properties.encode(), tag, 0, 0, born_ms, _HOST
    )
