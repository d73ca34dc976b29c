"""What each Python process of Spark imports: there are up to five of them before the first row of a session."""

import subprocess
import sys

NOT_NEEDED = ("remoting.client", "remoting.tls_settings", "spark.wire.cluster", "spark.stream", "store.commit_log")


def test_a_read_of_files_imports_neither_connections_nor_the_store_that_writes() -> None:
    program = "import sys, spark.source; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    imported = done.stdout.split()
    assert "spark.plan" in imported
    assert not set(NOT_NEEDED) & set(imported)
