"""The compiled engine beside pure Python: what each of them needs for the same work, in turns.

    python -m benchmarks.engine [--log-mb 256] [--rounds 5] [--folder FOLDER]

For records of 200 bytes and of 1 KiB it writes a log through the store.  Then a process of each engine in turns does
the work of the table, and the control: a copy of the log's bytes in memory.  Times are seconds of CPU of the fastest of
two passes; the table shows medians over the rounds, and medians of ratios taken round by round.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

import numpy as np

from benchmarks.spark.read import planned, read_columns
from benchmarks.store.recovery import SEGMENT_BYTES, recover, walk, write_log
from spark.decode.decoder import DecodeOptions
from store.config.store_config import StoreConfig
from store.disk.disk import RealDisk
from store.index.key_scan import entries_of
from store.log.commit_log import CommitLog
from store.log.log_scan import ChunkScan

ENGINES = ("python", "native")
QUEUES = 16
_PASSES = 2
CONTROL = "copy in memory"


def config_of(root: Path) -> StoreConfig:
    return StoreConfig(
        store_path_root_dir=root, mapped_file_size_commit_log=SEGMENT_BYTES, enabled_append_prop_crc=True
    )


def cpu_s(work: Callable[[], object]) -> float:
    """Seconds of CPU of the fastest pass."""
    best = float("inf")
    for _ in range(_PASSES):
        began = time.process_time()
        work()
        best = min(best, time.process_time() - began)
    return best


def index_all(config: StoreConfig) -> None:
    """Find the keys of all records, without writing an index."""
    log = CommitLog(config, RealDisk())
    log.load()
    for batch in ChunkScan(log, 0, check_crc=False):
        entries_of(batch)
    log.close()


def copy_all(root: Path) -> None:
    for path in sorted((root / "commitlog").iterdir()):
        np.array(np.memmap(path, np.uint8, "r"))


def log_times(root: Path) -> dict[str, float]:
    """Seconds for each kind of work on the store below `root`."""
    config = config_of(root)
    spans = planned(root)
    return {
        CONTROL: cpu_s(lambda: copy_all(root)),
        "walk, all CRCs checked": min(walk(config, by_record=False).seconds for _ in range(_PASSES)),
        "recovery, ConsumeQueues rebuilt": min(recover(config, by_record=False).seconds for _ in range(_PASSES)),
        "index keys": cpu_s(lambda: index_all(config)),
        "Spark, no column": cpu_s(lambda: read_columns(spans, (), DecodeOptions())),
        "Spark, body with CRC": cpu_s(lambda: read_columns(spans, ("body",), DecodeOptions())),
    }


def measured(engine: str, *arguments: str) -> dict[str, float]:
    """The times of one process with this engine."""
    command = [sys.executable, "-m", "benchmarks.engine", *arguments]
    done = subprocess.run(
        command, env={**os.environ, "SPROCKET_ENGINE": engine}, capture_output=True, text=True, check=True
    )
    times: dict[str, float] = json.loads(done.stdout)
    return times


def compare(rounds: int, *arguments: str) -> dict[str, list[dict[str, float]]]:
    """Times of both engines, round by round."""
    found: dict[str, list[dict[str, float]]] = {engine: [] for engine in ENGINES}
    for _ in range(rounds):
        for engine in ENGINES:
            found[engine].append(measured(engine, *arguments))
    return found


def show_log(record_bytes: int, size_bytes: int, found: dict[str, list[dict[str, float]]]) -> None:
    """Rows of GB/s of CPU time."""
    for name in found["native"][0]:
        python, native = ([one[name] for one in found[engine]] for engine in ENGINES)
        ratio = median(ours / theirs for ours, theirs in zip(python, native, strict=True))
        share = median(one[CONTROL] / one[name] for one in found["native"])
        rates = " | ".join(f"{size_bytes / median(times) / 1e9:.2f}" for times in (python, native))
        print(f"| {name}, {record_bytes} B | {rates} | {ratio:.1f} | {share:.2f} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--log-mb", type=int, default=256)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--folder", type=Path, default=None)
    parser.add_argument("--store", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.store:
        print(json.dumps(log_times(arguments.store)))
        return
    print("| work | python, GB/s | native, GB/s | times as fast | share of a copy |\n|---|--:|--:|--:|--:|")
    for record_bytes in (200, 1024):
        root = Path(tempfile.mkdtemp(prefix="engine-", dir=arguments.folder))
        try:
            write_log(config_of(root), record_bytes, arguments.log_mb << 20, QUEUES)
            size_bytes = arguments.log_mb << 20
            show_log(record_bytes, size_bytes, compare(arguments.rounds, "--store", str(root)))
        finally:
            shutil.rmtree(root, ignore_errors=True)


if __name__ == "__main__":
    main()
