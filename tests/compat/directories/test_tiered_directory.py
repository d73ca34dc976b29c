"""RocketMQ's own classes write its tiered storage, and `sprocket store import` makes a store of it."""

import subprocess
import tarfile
from pathlib import Path

import pytest

from tests.compat import maven
from tests.compat.directories.test_store_files import DATA
from tests.compat.java_client import tools_command
from tests.sprocket_cli.store.test_import_tier import imported, messages_in

pytestmark = pytest.mark.java


@pytest.mark.parametrize("crc", ["", "-crc"])
def test_messages_of_a_broker_come_over(tmp_path: Path, java: None, crc: str) -> None:
    with tarfile.open(DATA / f"apache-store-5.3.3{crc}.tar.xz") as archive:
        archive.extractall(tmp_path, filter="data")
    source = Path(maven.__file__).parent / "java" / "store" / "TierTool.java"
    command = tools_command(tmp_path / "home", maven.compiled(source, maven.apache_classpath()))
    log, tier = tmp_path / "store" / "commitlog", tmp_path / "tier"
    subprocess.run([*command, source.stem, log, tier, "3000"], check=True, timeout=120)
    new = tmp_path / "new"
    imported(tier, new)
    original, found = messages_in(tmp_path / "store"), messages_in(new)
    assert len(found) > 200
    assert {key: original[key][0] for key in found} == {key: value[0] for key, value in found.items()}
