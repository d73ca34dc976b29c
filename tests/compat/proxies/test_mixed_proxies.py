"""Apache RocketMQ's proxy and ours before one broker agree on the members of a group."""

import asyncio
import json
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from sprocket.common.processes.child_process import ChildProcess
from sprocket.grpc_wire import messaging_pb2 as wire
from sprocket.testing import Broker
from tests.compat import maven
from tests.compat.ports import free_port
from tests.compat.proxies.proxy_rig import OwnBroker
from tests.proxy.remoting.test_remoting_port import Caller
from tests.proxy.rig import consumer_settings, create_topic, running

pytestmark = [pytest.mark.java, pytest.mark.timeout(300)]
_START_LIMIT_S = 180
_CLIENTS = ["at-apache", "at-ours", "grpc-at-apache", "grpc-at-ours"]


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    with Broker(tmp_path / "broker") as started:
        yield started


class ApacheProxy:
    """RocketMQ's proxy, in local mode if `broker` is its own; `end` stops it."""

    def __init__(self, broker: Broker | OwnBroker, home: Path) -> None:
        self.grpc_port, self.remoting_port = free_port(), free_port()
        self.log = home / "out.txt"
        settings = {
            "rocketMQClusterName": "DefaultCluster", "namesrvAddr": broker.namesrv,
            "grpcServerPort": self.grpc_port, "remotingListenPort": self.remoting_port,
        }  # fmt: skip
        mode, memory_mib = "", 384
        if isinstance(broker, OwnBroker):
            settings["rocketMQClusterName"] = broker.cluster
            mode, memory_mib = f"-pm local -bc {broker.file}", 768
        (home / "conf").mkdir(parents=True)
        file = home / "conf" / "rmq-proxy.json"
        file.write_text(json.dumps(settings))
        program = (
            f'exec {" ".join(maven.short_java())} -Xmx{memory_mib}m -Duser.home={home} -cp "{maven.proxy_classpath()}" '
        )
        program += f"org.apache.rocketmq.proxy.ProxyStartup {mode} -pc {file} > {self.log} 2>&1"
        command = ["env", f"RMQ_PROXY_HOME={home}", "sh", "-c", program]
        self._process = ChildProcess("apache-proxy", command, home)
        self._process.launch()

    @property
    def pid(self) -> int:
        return self._process.pid

    def await_start(self) -> None:
        limit = time.monotonic() + _START_LIMIT_S
        while "startup successfully" not in (self.log.read_text() if self.log.exists() else ""):
            assert time.monotonic() < limit, self.log.read_text()[-2000:]
            time.sleep(0.2)

    def end(self) -> None:
        self._process.end(signal.SIGTERM, 30.0)


@pytest.fixture
def apache(broker: Broker, tmp_path: Path) -> Iterator[ApacheProxy]:
    try:
        proxy = ApacheProxy(broker, tmp_path / "apache")
    except maven.JavaMissingError as missing:
        pytest.skip(str(missing))
    proxy.await_start()
    yield proxy
    proxy.end()


async def test_members_are_the_same_at_both(broker: Broker, apache: ApacheProxy) -> None:
    topic = await create_topic(broker)
    async with running(broker) as rig:
        theirs, ours = Caller(rig, port=apache.remoting_port), Caller(rig)
        client = rig.client("grpc-at-ours")
        await client.report(consumer_settings(topic, "mixed"))
        await rig.client("grpc-at-apache", port=apache.grpc_port).report(consumer_settings(topic, "mixed"))

        async def agree_on(expected: list[str]) -> None:
            async with asyncio.timeout(60):
                while True:
                    found = sorted(await theirs.members("mixed")), sorted(await ours.members("mixed"))
                    if found == (expected, expected):
                        return
                    # RocketMQ's proxy reads what is told after its start; an unchanged member is told every 25 s.
                    await theirs.heartbeat("at-apache", "mixed", topic)
                    await client.call("Heartbeat", wire.HeartbeatRequest(group=wire.Resource(name="mixed")))
                    if "at-ours" in expected:
                        await ours.heartbeat("at-ours", "mixed", topic)
                    await asyncio.sleep(0.5)

        await agree_on(_CLIENTS)
        await ours.client.close()
        ours = Caller(rig)
        await agree_on([one for one in _CLIENTS if one != "at-ours"])
        await theirs.client.close()
        await ours.client.close()
