"""Spark on a cluster: executors have the wheel and nothing else of the project, and read a folder that they share."""

import json
from pathlib import Path

import pytest

from benchmarks.spark.data import MEBIBYTE, Data, write_store
from spark.runtime.java_home import find_java_home
from sprocket.common.errors import ConfigError
from tests.compat.maven import JavaMissingError, yarn_classpath
from tests.spark.standalone import bare_python, build_wheel, standalone_cluster, submit
from tests.spark.yarn import packed_environment, submit_to_yarn, yarn_cluster

APPLICATION = Path(__file__).parent / "cluster_application.py"
TOPICS = 4


@pytest.mark.slow
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
    assert the_result(output) == {**expected(data, wheel), "master": url}


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("mode", ["client", "cluster"])
def test_yarn(tmp_path: Path, mode: str) -> None:
    """Containers have the dependencies by --archives and the wheel by --py-files."""
    try:
        yarn_classpath()
    except JavaMissingError as missing:
        pytest.skip(str(missing))
    data = write_store(tmp_path / "store", 48 * MEBIBYTE, TOPICS)
    work = tmp_path / "work"
    work.mkdir()
    wheel, archive = build_wheel(tmp_path), packed_environment(work)
    with yarn_cluster(tmp_path) as conf:
        output = submit_to_yarn(mode, conf, archive, wheel, [str(APPLICATION), str(data.root)])
    assert the_result(output) == {**expected(data, wheel), "master": "yarn"}


def the_result(output: str) -> dict[str, object]:
    """What the application says."""
    found: dict[str, object] = json.loads(
        next(line for line in output.splitlines() if line.startswith("RESULT "))[len("RESULT ") :]
    )
    return found


def expected(data: Data, wheel: Path) -> dict[str, object]:
    """Of every master."""
    return {
        "topics": {f"topic-{number}": data.message_count // TOPICS for number in range(TOPICS)},
        "rows": data.message_count,
        "wheels": [wheel.with_suffix(".zip").name],
        "executors": 2,
        "partitions": "2",  # spark-submit was told so
    }
