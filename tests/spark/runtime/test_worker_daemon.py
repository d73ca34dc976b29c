"""A query that stops before its workers are through prints no stack."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from spark.runtime.java_home import find_java_home
from spark.runtime.worker_daemon import until_spark_hangs_up
from sprocket.common.errors import ConfigError
from tests.spark.store_builder import Row, StoreBuilder

SCRIPT = """
import sys
import sprocket.spark
spark = sprocket.spark.session("local[2]")
messages = spark.read.format("rocketmq").option("subscribe", "T").load(sys.argv[1])
for _ in range(3):
    messages.show(1)
    assert messages.first().topic == "T"
print(messages.count())
"""


def test_only_the_end_of_the_connection_is_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "unraisablehook", sys.unraisablehook)

    def hung_up(*_: object) -> int:
        raise BrokenPipeError

    def broken(*_: object) -> int:
        raise ValueError("a bug")

    assert until_spark_hangs_up(lambda sock, authenticated: 0)("socket", True) == 0
    assert until_spark_hangs_up(hung_up)("socket", True) == 1
    with pytest.raises(ValueError, match="a bug"):
        until_spark_hangs_up(broken)("socket", True)


@pytest.mark.spark
@pytest.mark.timeout(400)
@pytest.mark.skipif(
    "SPARK_HOME" in os.environ or os.environ.get("PYSPARK_PYTHON", sys.executable) != sys.executable,
    reason="another PySpark or Python was asked for",
)
def test_a_script_that_looks_at_one_row(tmp_path: Path) -> None:
    try:
        find_java_home()
    except ConfigError as error:
        pytest.skip(str(error))
    builder = StoreBuilder(tmp_path / "store")
    builder.extend(Row(body=b"x" * 100) for _ in range(3000))
    builder.write()
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    command = [sys.executable, str(script), str(builder.root)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=380)
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith("3000\n")
    assert "Traceback" not in done.stderr, done.stderr
