"""A proxy process, the topics of scenarios, and their outcomes: for tests with real gRPC clients."""

import asyncio
import os
import signal
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol, Self

from sprocket.common.processes.child_process import ChildProcess, bound
from sprocket.remoting.bodies.group import SubscriptionGroupConfig
from sprocket.remoting.client import RemotingClient
from sprocket.remoting.codec.fastjson import dumps
from sprocket.remoting.codes import RequestCode
from sprocket.remoting.credentials import Credentials
from sprocket.remoting.headers.admin import CreateTopicRequestHeader
from tests.compat.java_client import Outcome
from tests.compat.ports import free_port
from tests.compat.proxies import proxy_clients

PROPERTIES = {
    "enablePropertyFilter": "true", "recallMessageEnable": "true", "transactionCheckInterval": "5000",
    "enableLmq": "true", "enableMultiDispatch": "true",
}  # fmt: skip
_START_LIMIT_S = 60
# The scenario `renewal` works for 12 s on a message.
SETTINGS = {"defaultInvisibleTimeMills": "8000", "renewAheadTimeMillis": "5000", "renewSchedulePeriodMillis": "1000"}


class Served(Protocol):
    """What a proxy and scenarios must know of a broker."""

    @property
    def namesrv(self) -> str: ...

    @property
    def address(self) -> str: ...


class OwnBroker:
    """The broker of a proxy in local mode: its address, its file, and what it has in common with `Broker`."""

    def __init__(self, namesrv: str, folder: Path, settings: Mapping[str, str] | None = None) -> None:
        self.namesrv = namesrv
        self.file = folder / "broker.conf"
        port, self.cluster = free_port(), f"own-{folder.name}"
        self.address = f"127.0.0.1:{port}"
        folder.mkdir(parents=True)
        self.keys = {
            "brokerClusterName": self.cluster, "brokerName": self.cluster, "listenPort": str(port),
            "brokerIP1": "127.0.0.1", "brokerIP2": "127.0.0.1", "haListenPort": str(free_port()),
            "storePathRootDir": str(folder / "store"), "mappedFileSizeCommitLog": str(128 * 1024 * 1024),
            "namesrvAddr": namesrv, **(settings or {}),
        }  # fmt: skip
        self.file.write_text("".join(f"{key}={value}\n" for key, value in self.keys.items()))


class ProxyProcess:
    """`mqproxy` before `broker`, in local mode if that is its own; `start` again after `end` takes the same port."""

    def __init__(
        self,
        broker: Served,
        folder: Path,
        settings: Mapping[str, str] | None = None,
        python: Path | None = None,
    ) -> None:
        """`python` is that of another checkout, whose proxy is to run."""
        self.broker = broker
        self._python = [] if python is None else [str(python)]
        self._settings = {**SETTINGS, "grpcServer": os.environ.get("GRPC_SERVER", "auto"), **(settings or {})}
        self._folder = folder
        self.port = free_port()
        self._remoting_port = free_port()
        self._process: ChildProcess | None = None

    @property
    def endpoints(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def remoting_address(self) -> str:
        return f"127.0.0.1:{self._remoting_port}"

    def start(self) -> Self:
        program = bound("sprocket_cli", "proxy")
        command = [
            *(self._python or program[:1]),
            *program[1:],
            "-n",
            self.broker.namesrv,
            "--json",
            "--log-level",
            "warning",
        ]
        ports = {"grpcServerPort": str(self.port), "remotingListenPort": str(self._remoting_port)}
        for key, value in {**ports, "bindAddress": "127.0.0.1", **self._settings}.items():
            command += ["--set", f"{key}={value}"]
        if isinstance(self.broker, OwnBroker):
            command += ["-pm", "local", "-bc", str(self.broker.file)]
        self._folder.mkdir(parents=True, exist_ok=True)
        self._process = ChildProcess("proxy", command, self._folder)
        self._process.launch()
        assert self._process.facts(_START_LIMIT_S)["serving"]
        return self

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def end(self, how: signal.Signals) -> None:
        if self._process is not None:
            self._process.end(how, 60.0)


def prepare(broker: Served, run: str, scenarios: Sequence[str], credentials: Credentials | None = None) -> None:
    """Create the topic and the group of each scenario."""

    async def create() -> None:
        client = RemotingClient(credentials=credentials)
        for name in scenarios:
            topic = f"{run}-{name}"
            header = CreateTopicRequestHeader(
                topic=topic, default_topic="TBW102", read_queue_nums=4, write_queue_nums=4, perm=6,
                topic_filter_type="SINGLE_TAG", topic_sys_flag=0, order=False,
                attributes=f"+message.type={proxy_clients.type_of(name)}",
            )  # fmt: skip
            made = await client.invoke(broker.address, RequestCode.UPDATE_AND_CREATE_TOPIC, header)
            assert made.code == 0, made.remark
            group = SubscriptionGroupConfig(
                f"{topic}-group",
                consume_message_orderly=name in ("fifo", "lite", "lite-exclusive"),
                retry_max_times=1 if name == "dead-letter" else 16,
                attributes=_attributes(name, topic),
            )
            code = RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP
            assert (await client.invoke(broker.address, code, None, dumps(group))).code == 0
        await client.close()

    asyncio.run(create())


def _attributes(scenario: str, topic: str) -> dict[str, str]:
    if proxy_clients.type_of(scenario) != "LITE":
        return {}
    return {"+lite.bind.topic": topic} | ({"+lite.sub.model": "Exclusive"} if scenario == "lite-exclusive" else {})


def check(outcomes: dict[str, Outcome], scenarios: Sequence[str]) -> None:
    failed = {name: outcomes[name].message for name in scenarios if name in outcomes and not outcomes[name].passed}
    assert not failed
    assert set(outcomes) == set(scenarios), "a scenario never reported"
