"""A slave of Apache RocketMQ follows a master of ours that takes nothing but TLS; the log itself is plain.

RocketMQ's connection to a master's port for slaves knows no TLS: `haAllowCleartext` lets it in.
"""

import asyncio
import datetime
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from sprocket.client.admin.admin_client import AdminClient, AdminError
from sprocket.remoting.bodies.topic import TopicConfig
from sprocket.remoting.codes import RequestCode
from sprocket_cli.processes.tls_folder import HOSTS, TlsFolder
from tests.compat import maven, wire
from tests.compat.replication.replicas import LIMIT_S, Replicas, log_of, parsed
from tests.send_headers import send_header

# The JVM alone takes up to half a minute to start.
pytestmark = [pytest.mark.java, pytest.mark.slow, pytest.mark.timeout(500)]

TOPIC = "Orders"
_BODIES = [b"message %d" % number for number in range(40)]


async def eventually(holds: Callable[[], Awaitable[bool]], what: str) -> None:
    """Wait until it does."""
    deadline = time.monotonic() + LIMIT_S
    while True:
        try:
            if await holds():
                return
        except (AdminError, OSError):
            pass
        assert time.monotonic() < deadline, f"not in {LIMIT_S:g} s: {what}"
        await asyncio.sleep(0.1)


async def send_all(admin: AdminClient, address: str) -> None:
    """All bodies to queue 0."""
    for body in _BODIES:
        header = send_header(TOPIC, default_topic_queue_nums=1, properties="")
        assert (await admin.ask(address, RequestCode.SEND_MESSAGE_V2, header, body)).code == 0


@pytest.fixture
def keys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> TlsFolder:
    """Certificates, and the words with which a server that is started now finds them, of either kind."""
    folder = TlsFolder(tmp_path / "keys")
    folder.create(HOSTS, datetime.datetime.now(datetime.UTC), 10)
    words = f"-Dtls.enable=true -Dtls.config.file={folder.properties('broker')}"
    # The harness asks name servers in clear whether they have started.
    monkeypatch.setenv("JAVA_OPT", f"{words} -Dtls.server.mode=permissive")
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", f"{words} -Dtls.server.mode=enforcing")
    return folder


async def test_a_slave_of_apache_follows_a_master_under_tls(
    keys: TlsFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    try:
        maven.apache_classpath()
    except maven.JavaMissingError as missing:
        pytest.skip(str(missing))
    with Replicas(tmp_path) as replicas:
        words = f"-Dtls.config.file={keys.properties('broker')} -Dtls.server.mode=enforcing"
        monkeypatch.setenv("JAVA_OPT", words)
        master = replicas.add("sprocket", "broker-a", 0, "ASYNC_MASTER", haAllowCleartext="true")
        slave = replicas.add("apache", "broker-a", 1, "SLAVE")
        master.start()
        slave.start()
        async with AdminClient(replicas.name_servers.split(";"), tls=keys.client_settings()) as admin:

            async def is_in_step() -> bool:
                slave.check()
                status = parsed(
                    bytes((await admin.ask(master.address, RequestCode.GET_BROKER_HA_STATUS)).body).decode()
                )
                assert isinstance(status, dict)
                return any(one["diff"] == 0 and one["inSync"] for one in status["haConnectionInfo"])

            await eventually(is_in_step, "the slave is connected")
            await admin.create_topic(master.address, TopicConfig(TOPIC, read_queue_nums=1, write_queue_nums=1))
            await send_all(admin, master.address)
            await eventually(is_in_step, "the slave has the log")
            end = int((await admin.broker_runtime_info(master.address))["commitLogMaxOffset"])
            assert log_of(master, 0, end) == log_of(slave, 0, end)
            # Tables come over the port for clients, by TLS.
            topics = slave.directory / "store" / "config" / "topics.json"

            async def knows_the_topic() -> bool:
                return topics.is_file() and f'"{TOPIC}"' in topics.read_text()

            await eventually(knows_the_topic, "the slave has its master's topics")
            assert int((await admin.broker_runtime_info(slave.address))["commitLogMaxOffset"]) == end
            for server in (master, slave):
                with pytest.raises((ConnectionError, wire.WireError)):
                    wire.invoke(server.address, RequestCode.GET_BROKER_RUNTIME_INFO)
