"""UPDATE_BROKER_CONFIG over the wire, and the configuration of a broker that restarts from its file."""

import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from broker.config.broker_config import BrokerConfig
from broker.server import Broker
from sprocket.common import failpoints
from sprocket.common.config.configuration_file import ConfigurationFile
from sprocket.remoting.codes import RequestCode, ResponseCode
from sprocket_cli.server.server_config import broker_configuration
from store.config.store_config import StoreConfig
from tests.broker.rig import TestClient

CONTENT = """\
# written by hand
brokerName=broker-a
brokerIP1=127.0.0.1
bindAddress=127.0.0.1
listenPort=0
mappedFileSizeCommitLog=1048576
mappedFileSizeConsumeQueue=20000
diskSpaceWarningLevelRatio=100
cleanFileForciblyEnable=false
autoCreateTopicEnable=true
unheardOf=kept
"""


class OperatorsFile:
    """What stands in the configuration file."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "broker.conf"
        self.path.write_text(CONTENT + f"storePathRootDir={folder / 'store'}\n")

    def text(self, more: str = "") -> str:
        return self.path.with_name(self.path.name + more).read_text()

    def identity(self) -> tuple[int, int]:
        status = self.path.stat()
        return status.st_ino, status.st_mtime_ns

    def allow(self, mode: int) -> None:
        self.path.chmod(mode)


@pytest.fixture
def file(tmp_path: Path) -> OperatorsFile:
    return OperatorsFile(tmp_path)


@pytest.fixture
def disarmed() -> Iterator[None]:
    yield
    failpoints.arm(None)


@asynccontextmanager
async def started(file: OperatorsFile, *overrides: str, keeps: bool = True) -> AsyncIterator[tuple[Broker, TestClient]]:
    """A broker as the command line starts it from `file`."""
    configuration = broker_configuration(file.path, "", overrides)
    kept = ConfigurationFile.of(configuration) if keeps else None
    broker = Broker(configuration.of(BrokerConfig), configuration.of(StoreConfig), file=kept)
    await broker.start()
    client = TestClient(f"127.0.0.1:{broker.port}")
    try:
        yield broker, client
    finally:
        await client.close()
        await broker.stop()


async def told(client: TestClient) -> tuple[set[str], int]:
    """The lines of GET_BROKER_CONFIG and the counter of its version."""
    response = await client.ask_well(RequestCode.GET_BROKER_CONFIG)
    return set(response.body.decode().splitlines()), json.loads(response.ext_fields["version"])["counter"]


async def test_an_update_is_there_after_a_restart(file: OperatorsFile) -> None:
    before = file.text()
    async with started(file) as (_, client):
        _, counter = await told(client)
        body = b"autoCreateTopicEnable=false\nfileReservedTime=48\n"
        response = await client.ask_well(RequestCode.UPDATE_BROKER_CONFIG, body=body)
        assert response.remark is None
        lines, after = await told(client)
        assert {"autoCreateTopicEnable=false", "fileReservedTime=48"} <= lines
        assert after == counter + 1
    changed = before.replace("autoCreateTopicEnable=true", "autoCreateTopicEnable=false") + "fileReservedTime=48\n"
    assert file.text() == changed
    assert file.text(".bak") == before
    async with started(file) as (broker, client):
        lines, _ = await told(client)
        assert {"autoCreateTopicEnable=false", "fileReservedTime=48"} <= lines
        assert not broker.config.broker.auto_create_topic_enable


async def test_what_the_file_cannot_keep_is_not_in_force(file: OperatorsFile, disarmed: None) -> None:
    async with started(file) as (broker, client):
        before, content = broker.config.broker, file.text()
        file.allow(0o440)
        for reason in ("read-only", "No space left on device"):
            response = await client.ask(RequestCode.UPDATE_BROKER_CONFIG, body=b"autoCreateTopicEnable=false\n")
            assert response.code == ResponseCode.SYSTEM_ERROR
            assert reason in (response.remark or "") and str(file.path) in (response.remark or "")
            assert broker.config.broker is before
            assert file.text() == content
            file.allow(0o640)
            failpoints.arm("atomic_file.before_sync=error:ENOSPC")
        failpoints.arm(None)
        await client.ask_well(RequestCode.UPDATE_BROKER_CONFIG, body=b"autoCreateTopicEnable=false\n")
        assert not broker.config.broker.auto_create_topic_enable


async def test_a_refused_update_does_not_touch_the_file(file: OperatorsFile) -> None:
    before = file.identity()
    async with started(file) as (_, client):
        for body in (b"traceOn=false\nlistenPort=1\n", b"traceOn=perhaps\n", b"brokerPermission=1\n"):
            response = await client.ask(RequestCode.UPDATE_BROKER_CONFIG, body=body)
            assert response.code == ResponseCode.NO_PERMISSION
    assert file.identity() == before


async def test_the_response_to_an_update_names_what_will_not_last(file: OperatorsFile) -> None:
    body = b"traceOn=false\nautoCreateTopicEnable=false\n"
    async with started(file, "traceOn=true") as (_, client):
        response = await client.ask_well(RequestCode.UPDATE_BROKER_CONFIG, body=body)
        assert "traceOn" in (response.remark or "") and "autoCreate" not in (response.remark or "")
    assert "autoCreateTopicEnable=false" in file.text()
    content = file.text()
    async with started(file, keeps=False) as (broker, client):
        response = await client.ask_well(RequestCode.UPDATE_BROKER_CONFIG, body=b"traceOn=true")
        assert "until the server ends" in (response.remark or "")
        assert broker.config.broker.trace_on
    assert file.text() == content
