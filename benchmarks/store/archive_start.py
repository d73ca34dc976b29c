"""Start of a broker with many segments on the object store, beside a start of the same store without one.

    python -m benchmarks.store.archive_start [--segments 1000] [--rounds 5] [--queues 64] [--folder FOLDER]

The log has full CommitLog files of 1 GiB, sparse: some messages, then a blank.  1,000 of them are 1 TB of log.  First a
broker archives it to a directory; then brokers start in turns, with the archive and without.  It prints the seconds
until the broker serves, its memory that is no file's ten seconds later, and until it has read the manifest.  Goal: with
1,000 segments at most 2 s more, and memory that does not grow with the log.
"""

import argparse
import shutil
import statistics
import tempfile
import time
from pathlib import Path

from benchmarks.system.records import message_record
from store.layout import file_name
from store.record.record import blank
from tests.chaos.nursery import ChaosBroker, Nursery

SEGMENT_BYTES = 1 << 30
MESSAGES = 256
TOPIC = b"Orders"
_WAIT_S = 10.0
_POLL_S = 0.5


def sparse_log(folder: Path, segments: int, queues: int) -> None:
    """Write a log of full files, and begin one more."""
    folder.mkdir(parents=True)
    for segment in range(segments + 1):
        start = segment * SEGMENT_BYTES
        records, size = [], 0
        for number in range(MESSAGES):
            place = (segment * MESSAGES + number) // queues
            record = message_record(
                b"x" * 200, topic=TOPIC, queue_id=number % queues, queue_offset=place, at=start + size
            )
            records.append(record)
            size += len(record)
        with (folder / file_name(start)).open("wb") as file:
            file.write(b"".join(records))
            if segment < segments:
                file.write(blank(SEGMENT_BYTES - size))
            file.truncate(SEGMENT_BYTES)


def archived(archive: Path) -> int:
    """Return how many segments are in the archive's folder."""
    found = list(archive.glob("*/*/segments"))
    return len(list(found[0].iterdir())) if found else 0


def started(broker: ChaosBroker) -> tuple[float, float]:
    """Start and stop a broker; return the seconds until it serves, and its memory in MiB some seconds later."""
    began = time.monotonic()
    broker.start()
    served_s = time.monotonic() - began
    time.sleep(_WAIT_S)
    memory = broker.anonymous_bytes() / (1 << 20)
    broker.stop()
    return served_s, memory


def run(args: argparse.Namespace, root: Path) -> None:
    """Measure, and print a line for each kind of start."""
    directory, archive = root / "broker", root / "archive"
    sparse_log(directory / "store" / "commitlog", args.segments, args.queues)
    # Files of a sparse log have no age, and nothing is to be deleted.
    plain = {"fileReservedTime": "100000", "tieredStoreFileReservedTime": "100000", "diskMaxUsedSpaceRatio": "99"}
    tiered = {**plain, "tieredStoreFilePath": str(archive)}
    with Nursery() as nursery:
        began = time.monotonic()
        with ChaosBroker(nursery, directory, tiered) as broker:
            broker.start()
            while archived(archive) < args.segments:
                time.sleep(_POLL_S)
            time.sleep(_POLL_S)
            broker.stop()
        print(f"{args.segments} segments of {SEGMENT_BYTES >> 20} MiB archived in {time.monotonic() - began:.0f} s")
        rows: dict[str, list[tuple[float, float]]] = {"without": [], "with": []}
        for _ in range(args.rounds):
            for name, properties in (("without", plain), ("with", tiered)):
                with ChaosBroker(nursery, directory, properties) as broker:
                    rows[name].append(started(broker))
    for name, found in rows.items():
        served_s, memory = map(statistics.median, zip(*found, strict=True))
        print(f"{name:8} the archive: serves after {served_s:.2f} s; {memory:.0f} MiB")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--segments", type=int, default=1000)
    parser.add_argument("--queues", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--folder", type=Path, default=None)
    args = parser.parse_args()
    root = Path(tempfile.mkdtemp(prefix="archive-start-", dir=args.folder))
    try:
        run(args, root)
    finally:
        shutil.rmtree(root, ignore_errors=True)


if __name__ == "__main__":
    main()
