"""What each Python process of Spark imports: there are up to five of them before the first row of a session."""

import subprocess
import sys

import pytest

THE_STORE_THAT_WRITES = ("store.log.commit_log", "store.config.store_config", "store.queue.consume_queue_table")
CONNECTIONS = ("sprocket.remoting.client", "sprocket.remoting.tls.settings", "spark.wire.cluster")


@pytest.mark.parametrize(
    ("module", "not_needed"),
    [
        ("spark.source", (*CONNECTIONS, *THE_STORE_THAT_WRITES, "spark.stream")),
        ("spark.stream", THE_STORE_THAT_WRITES),
    ],
)
def test_a_read_imports_only_what_it_needs(module: str, not_needed: tuple[str, ...]) -> None:
    program = f"import sys, {module}; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    imported = done.stdout.split()
    assert module in imported
    assert not set(not_needed) & set(imported)
