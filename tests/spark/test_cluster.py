"""Spark on a cluster: executors have the wheel and nothing else of the project, and read a folder that they share."""

import json
from pathlib import Path

import pytest

from benchmarks.spark.data import MEBIBYTE, write_store
from spark.java_home import find_java_home
from sprocket.common.errors import ConfigError
from tests.spark.standalone import bare_python, build_wheel, standalone_cluster, submit

APPLICATION = Path(__file__).parent / "cluster_application.py"
TOPICS = 4


@pytest.mark.timeout(900)
def test_executors_need_only_the_wheel(tmp_path: Path) -> None:
    try:
        find_java_home()
    except ConfigError as missing:
        pytest.skip(str(missing))
    data = write_store(tmp_path / "store", 48 * MEBIBYTE, TOPICS)
    wheel, python = build_wheel(tmp_path), bare_python(tmp_path / "bare")
    with standalone_cluster(tmp_path, python) as url:
        output = submit(url, wheel, python, APPLICATION, [str(data.root)])
    result = json.loads(next(line for line in output.splitlines() if line.startswith("RESULT "))[len("RESULT ") :])
    assert result["master"] == url
    assert result["topics"] == {f"topic-{number}": data.message_count // TOPICS for number in range(TOPICS)}
    assert result["rows"] == data.message_count
    assert result["wheels"] == [wheel.with_suffix(".zip").name]
    assert result["executors"] == 2
    assert result["partitions"] == "2"  # spark-submit was told so
