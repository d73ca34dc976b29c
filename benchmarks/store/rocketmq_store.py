"""Apache RocketMQ's own store over a directory of ours: the control of the recovery and open benchmarks."""

import subprocess
from pathlib import Path

from store.config.store_config import StoreConfig
from tests.compat import maven

_TOOL = Path(__file__).resolve().parents[1] / "java" / "RecoveryTool.java"
_LIMIT_S = 540


def load_seconds(config: StoreConfig) -> tuple[float, int]:
    """Seconds that RocketMQ needs to load and recover the store, the start of its JVM not counted, and the log's end.

    The JVM has a heap of 1 GiB and compiles as it likes; it runs once, as a broker that starts does.  Raises
    `maven.JavaMissingError` where it cannot run, RuntimeError with its output where it refuses the store.
    """
    root = config.store_path_root_dir
    command = [
        maven.java(), "-Xmx1g", f"-Duser.home={root.parent}", "-cp", maven.apache_classpath(), str(_TOOL), str(root),
        str(config.mapped_file_size_commit_log), str(config.consume_queue_file_bytes),
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=_LIMIT_S, check=False)
    for line in done.stdout.splitlines():
        if line.startswith("LOADED "):
            _, millis, end = line.split()
            return int(millis) / 1000, int(end)
    raise RuntimeError(f"Apache RocketMQ does not load {root}: {done.stdout[-2000:]}{done.stderr[-2000:]}")
