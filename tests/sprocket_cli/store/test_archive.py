"""`sprocket store restore` and `check` of an archive, as an operator types them."""

import asyncio
import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from sprocket_cli.main import main
from store.tier.manifest import NAME, encode, folder_of
from store.tier.remote_store import open_store
from tests.store.rig import Stores, message
from tests.store.tier.reads.read_rig import archive

FOLDER = folder_of("DefaultCluster", "broker-a")


def run(*words: object) -> Result:
    return CliRunner().invoke(main, ["store", *map(str, words)])


@pytest.fixture
def bucket(tmp_path: Path) -> str:
    """The URL of an archive of one broker."""
    stores = Stores(tmp_path / "store")
    stores.fields["mapped_file_size_commit_log"] = 32 * 1024
    store = stores.open()
    for number in range(600):
        store.append([message("Orders", number % 2, b"body %d " % number * 5)])
    url = f"file://{tmp_path}/bucket"

    async def upload() -> None:
        objects = open_store(f"{url}/{FOLDER}")
        await objects.put_if(NAME, encode(await archive(store, objects)), None)

    asyncio.run(upload())
    stores.close(store)
    return url


def test_an_archive_is_restored_and_says_what_is_missing(bucket: str, tmp_path: Path) -> None:
    result = run("restore", bucket, tmp_path / "again")
    assert result.exit_code == 0, result.output
    assert "broker broker-a of DefaultCluster, log 0 to " in result.output
    assert "missing: topics, groups and offsets: the archive has no tables yet" in result.output
    checked = run("check", tmp_path / "again", "--segment-bytes", 32 * 1024, "--quick")
    assert "damage" not in checked.output
    again = run("restore", bucket, "--to", tmp_path / "again")
    assert again.exit_code == 74
    assert "is not empty" in again.output


def test_an_archive_is_checked_and_repaired(bucket: str, tmp_path: Path) -> None:
    assert run("check", bucket).exit_code == 0
    segment = min((tmp_path / "bucket" / FOLDER / "segments").iterdir())
    segment.unlink()
    result = run("check", bucket, "--json")
    document = json.loads(result.output)
    assert (result.exit_code, document["ok"]) == (1, False)
    assert [finding["kind"] for finding in document["findings"] if finding["severity"] == "loss"] == ["segment"]
    repaired = run("check", bucket, "--repair")
    assert "repaired: the manifest names 1 objects less" in repaired.output
    assert run("check", bucket).exit_code == 0


def test_a_manifest_that_is_gone_is_told_and_made_anew_of_the_objects(bucket: str, tmp_path: Path) -> None:
    before = run("restore", bucket, tmp_path / "before")
    (tmp_path / "bucket" / FOLDER / NAME).unlink()
    told = run("check", f"{bucket}/{FOLDER}")
    assert told.exit_code == 1
    assert f"sprocket store check {bucket}/{FOLDER} --repair" in told.output
    repaired = run("check", f"{bucket}/{FOLDER}", "--repair")
    assert repaired.exit_code == 0, repaired.output
    assert "missing: topics, groups and offsets" in repaired.output
    assert "restart the group's master" in repaired.output
    assert run("check", bucket).exit_code == 0
    again = run("restore", bucket, tmp_path / "again")
    assert again.output == before.output.replace("/before", "/again")


def test_what_is_no_archive_is_refused(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    result = run("check", f"file://{tmp_path}/empty")
    assert result.exit_code == 2
    assert "is no store and no archive" in result.output
    assert run("check", "ftp://host/x").exit_code == 2
    assert run("check", tmp_path / "empty", "--repair").exit_code == 2
    assert run("restore", f"file://{tmp_path}/empty").exit_code == 2
