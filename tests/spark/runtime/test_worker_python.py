"""The Python of Spark's workers: PySpark as it is installed, and the rest of PYTHONPATH as it was."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyspark
import pytest

from spark.runtime.worker_python import installed_pyspark

LIBRARY = Path(pyspark.__file__).parent / "python" / "lib"
ARCHIVES = [str(LIBRARY / "pyspark.zip"), *map(str, LIBRARY.glob("py4j-*-src.zip"))]


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SPARK_HOME", raising=False)
    monkeypatch.delenv("PYSPARK_PYTHON", raising=False)


def test_archives_are_left_out_and_all_else_is_kept() -> None:
    show = "import os, sys; print(os.environ['PYTHONPATH'], sys.executable, sys.argv[1])"
    with installed_pyspark("local[2]"):
        python = os.environ["PYSPARK_PYTHON"]
    assert "PYSPARK_PYTHON" not in os.environ
    for before, kept in (
        ([], ["a jar", "/more:/than one", "/*"]),
        ([], [ARCHIVES[0] + ".old"]),
        (["/a jar"], ["/a jar", "/a jar"]),
    ):
        given = {**os.environ, "PYTHONPATH": ":".join([*before, *ARCHIVES, *kept[len(before) :]])}
        shown = subprocess.run([python, "-c", show, "two words"], env=given, check=True, capture_output=True, text=True)
        assert shown.stdout == f"{':'.join(kept)} {sys.executable} two words\n"


def test_other_pythons_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    for master in (None, "spark://host:7077", "yarn"):
        with installed_pyspark(master):
            assert "PYSPARK_PYTHON" not in os.environ
    monkeypatch.setenv("PYSPARK_PYTHON", "/opt/python")
    with installed_pyspark("local[2]"):
        assert os.environ["PYSPARK_PYTHON"] == "/opt/python"
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    monkeypatch.setenv("SPARK_HOME", "/opt/spark")
    with installed_pyspark("local[2]"):
        assert os.environ["PYSPARK_PYTHON"] == sys.executable


@pytest.mark.spark
@pytest.mark.skipif(
    "SPARK_HOME" in os.environ or os.environ.get("PYSPARK_PYTHON", sys.executable) != sys.executable,
    reason="another PySpark or Python was asked for",
)
def test_a_worker_imports_what_is_installed(spark_session: Any) -> None:
    def places(_: Any) -> list[tuple[str, str]]:
        import pyspark

        return [(pyspark.__file__, sys.executable)]

    found = spark_session.sparkContext.parallelize([0], 1).mapPartitions(places).collect()
    assert found == [(pyspark.__file__, sys.executable)]


@pytest.mark.spark
def test_the_process_that_looks_for_data_sources(spark_session: Any) -> None:
    with pytest.raises(Exception, match="no such directory"):
        spark_session.read.format("rocketmq").load("/none").count()
    environments = [
        (process / "environ").read_text()
        for process in _children(spark_session.sparkContext._gateway.proc.pid)
        if "pyspark.sql.worker.lookup_data_sources" in (process / "cmdline").read_text()
    ]
    assert environments
    assert not [each for each in environments if any(archive in each for archive in ARCHIVES)]


def _children(pid: int) -> list[Path]:
    lists = [threads.read_text() for threads in Path(f"/proc/{pid}/task").glob("*/children")]
    return [Path("/proc", child) for each in lists for child in each.split()]
