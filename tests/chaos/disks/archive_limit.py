"""A broker whose archive holds much more than its disk: ``unshare -m python -m tests.chaos.disks.archive_limit``.

    unshare -m python -m tests.chaos.disks.archive_limit [--disk-mib 768] [--times 8]

The store lies on a file system of its own, of `--disk-mib`.  Senders send as fast as the broker takes it until
`--times` the size of the disk was acknowledged: a week of a disk that has room for a day.  A send that is refused,
because the archive is behind and the disk is full, is sent again.  Then every message is read, from its first on.

Prints one line of JSON.  Status 77: this machine does not allow mounts; 1: the disk was fuller than its limit, or a
message is missing.
"""

import argparse
import asyncio
import json
import os
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Final

import sprocket
from sprocket import ConsumeFrom, Message
from tests.chaos.disks.loop_disk import MIB, SKIPPED, CannotMount, mount_tmpfs, unmount_all
from tests.chaos.nursery import ChaosBroker, ChaosNameServer, Nursery

_SEGMENT_MIB: Final = 16
_BODY_BYTES: Final = 16 * 1024
_SENDERS: Final = 32
_RETRY_S: Final = 0.05
_LOOK_S: Final = 0.02
# Above diskSpaceWarningLevelRatio sends are refused; the store looks at the disk ten times a second.
_LIMIT: Final = 0.95
# A disk of 1/100 of the usual size is looked at and cleaned that much more often.
_KEYS: Final = {
    "mappedFileSizeCommitLog": str(_SEGMENT_MIB * MIB),
    "cleanResourceInterval": "100",
    "deleteCommitLogFilesInterval": "1",
    "maxHashSlotNum": "50000",
    "maxIndexNum": "200000",
    "autoCreateTopicEnable": "true",
}


class Load:
    """Senders of one topic; bodies do not compress, and begin with their numbers."""

    def __init__(self, messages: int) -> None:
        self._numbers = iter(range(messages))
        self.refused = 0

    async def send(self, mq: sprocket.Connection) -> None:
        """Send until there is nothing left."""
        producer = mq.producer("load")
        for number in self._numbers:
            message = Message("Week", number.to_bytes(8, "big") + os.urandom(_BODY_BYTES - 8))
            while True:
                try:
                    await producer.send(message)
                    break
                except sprocket.SprocketError:
                    self.refused += 1
                    await asyncio.sleep(_RETRY_S)


async def fullest(disk: Path, ended: asyncio.Event) -> float:
    """Return the highest use of the disk until `ended`."""
    highest = 0.0
    while not ended.is_set():
        usage = shutil.disk_usage(disk)
        highest = max(highest, usage.used / usage.total)
        await asyncio.sleep(_LOOK_S)
    return highest


async def consumed(mq: sprocket.Connection, messages: int) -> int:
    """Return how many of the messages a new group gets."""
    seen, left = bytearray(messages), messages
    async with mq.consumer("readers", "Week", consume_from=ConsumeFrom.FIRST) as consumer:
        while left:
            async with asyncio.timeout(60):
                message = await anext(aiter(consumer))
            number = int.from_bytes(message.body[:8], "big")
            left -= not seen[number]
            seen[number] = 1
            await message.ack()
    return messages - left


async def week(names: str, disk: Path, messages: int) -> dict[str, Any]:
    """Send, watch, read."""
    async with sprocket.connect(names) as mq:
        load, ended = Load(messages), asyncio.Event()
        watch, began = asyncio.create_task(fullest(disk, ended)), time.monotonic()
        await asyncio.gather(*(load.send(mq) for _ in range(_SENDERS)))
        seconds = time.monotonic() - began
        ended.set()
        began = time.monotonic()
        found = await consumed(mq, messages)
        read_s = time.monotonic() - began
    return {
        "sent_mib": messages * _BODY_BYTES // MIB, "send_mib_s": round(messages * _BODY_BYTES / MIB / seconds, 1),
        "refused": load.refused, "fullest": round(await watch, 3), "missing": messages - found,
        "read_mib_s": round(messages * _BODY_BYTES / MIB / read_s, 1),
    }  # fmt: skip


def run(folder: Path, disk: Path, messages: int) -> dict[str, Any]:
    """Run one broker with its store on `disk`, and its archive beside it."""
    with Nursery() as nursery, ChaosNameServer(nursery, folder / "names", {}) as names:
        names.start()
        keys = {**_KEYS, "namesrvAddr": names.address, "tieredStoreFilePath": str(folder / "archive")}
        with ChaosBroker(nursery, disk / "broker", keys, folder / "broker.log") as broker:
            broker.start()
            outcome = asyncio.run(week(names.address, disk, messages))
            outcome["memory_mib"] = broker.anonymous_bytes() // MIB
            broker.stop()
            return outcome


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos.disks.archive_limit")
    parser.add_argument("--disk-mib", type=int, default=768)
    parser.add_argument("--times", type=float, default=8.0, help="how often the disk is filled")
    args = parser.parse_args()
    messages = int(args.disk_mib * args.times) * MIB // _BODY_BYTES
    with tempfile.TemporaryDirectory(prefix="archive-limit-") as name:
        disk = Path(name) / "disk"
        try:
            mount_tmpfs(disk, args.disk_mib)
            outcome = run(Path(name), disk, messages)
        except CannotMount as error:
            print(error)
            sys.exit(SKIPPED)
        finally:
            unmount_all(disk)
    print(json.dumps(outcome))
    sys.exit(int(outcome["missing"] > 0 or outcome["fullest"] > _LIMIT))


if __name__ == "__main__":
    main()
