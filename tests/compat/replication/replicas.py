"""Brokers of either kind as replicas of one group, and what is compared between them."""

import contextlib
import json
import re
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final, Literal

from tests.compat import ports, wire
from tests.compat.cluster import CLUSTER_NAME, ApacheCluster, Cluster, Server, SprocketCluster

Kind = Literal["sprocket", "apache"]
LIMIT_S: Final = 240.0
SEGMENT_BYTES: Final = 1 << 20
GET_BROKER_HA_STATUS: Final = 907
GET_ALL_CONSUMER_OFFSET: Final = 43
UPDATE_CONSUMER_OFFSET: Final = 15
UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: Final = 200
UPDATE_BROKER_CONFIG: Final = 25
DELETE_EXPIRED_COMMITLOG: Final = 329
# What a table's file says of itself, and what differs from broker to broker.
_BARE_KEY: Final = re.compile(r"([{,]\s*)(-?\d+)\s*:")


class Replicas(contextlib.ExitStack):
    """Processes below one directory; all of them end with this context."""

    def __init__(self, directory: Path, name_servers: Kind = "sprocket", count: int = 1) -> None:
        super().__init__()
        self._directory = directory
        self._makers: dict[Kind, Cluster] = {}
        self.cluster = self._new_cluster(name_servers, name_servers=count)
        self._makers[name_servers] = self.cluster

    def __enter__(self) -> "Replicas":
        super().__enter__()
        self.enter_context(self.cluster)
        return self

    @property
    def name_servers(self) -> str:
        """Addresses of the name servers, as clients are given them."""
        return self.cluster.name_server_address

    def _new_cluster(self, kind: Kind, name_servers: int = 0) -> Cluster:
        directory = self._directory / f"{kind}-servers"
        if kind == "apache":
            return ApacheCluster(directory, brokers=0, name_servers=name_servers)
        return SprocketCluster(directory, brokers=0, name_servers=name_servers)

    def add(self, kind: Kind, name: str, broker_id: int, role: str = "ASYNC_MASTER", **properties: str) -> Server:
        """A broker that is not started yet; `name` is its group's.  Raises maven.JavaMissingError."""
        home = self._directory / f"{name}-{broker_id}-{kind}"
        home.mkdir(parents=True)
        return self.stack(self._server(kind, name, broker_id, home, role, properties))

    def again(self, kind: Kind, name: str, broker_id: int, home: Path, role: str, **properties: str) -> Server:
        """A broker over the directory of one that has ended, with another configuration."""
        return self.stack(self._server(kind, name, broker_id, home, role, properties))

    def stack(self, server: Server) -> Server:
        self.callback(server.stop)
        return server

    def _server(
        self, kind: Kind, name: str, broker_id: int, home: Path, role: str, properties: Mapping[str, str]
    ) -> Server:
        maker = self._makers.get(kind)
        if maker is None:
            maker = self._makers[kind] = self._new_cluster(kind)
        port = ports.free_broker_port()
        defaults = {
            "brokerClusterName": CLUSTER_NAME,
            "brokerName": name,
            "brokerId": str(broker_id),
            "brokerRole": role,
            "brokerIP1": "127.0.0.1",
            "brokerIP2": "127.0.0.1",
            "listenPort": str(port),
            "namesrvAddr": self.name_servers,
            "storePathRootDir": str(home / "store"),
            "storePathCommitLog": str(home / "store" / "commitlog"),
            "mappedFileSizeCommitLog": str(SEGMENT_BYTES),
            "flushDiskType": "ASYNC_FLUSH",
        }
        configuration = home / "broker.conf"
        content = {**defaults, **maker.extra_properties(), **properties}
        configuration.write_text("".join(f"{key}={value}\n" for key, value in content.items()))
        return Server(
            f"{name}-{broker_id}", f"127.0.0.1:{port}", maker.broker_command(configuration), home,
            maker.environment(home),
        )  # fmt: skip

    def await_registered(self, server: Server) -> None:
        """Until every name server knows the broker."""
        for name_server in self.cluster.name_servers:

            def is_known(address: str = name_server.address) -> bool:
                server.check()
                return server.address.encode() in wire.invoke(address, wire.GET_BROKER_CLUSTER_INFO).body

            until(is_known, f"{server.name} is registered")


def until(holds: Callable[[], object], what: str) -> None:
    """Wait.  Fails after `LIMIT_S`."""
    deadline = time.monotonic() + LIMIT_S
    while True:
        with contextlib.suppress(OSError, wire.WireError):
            if holds():
                return
        assert time.monotonic() < deadline, f"not in {LIMIT_S:g} s: {what}"
        time.sleep(0.1)


def send(
    address: str,
    count: int,
    size_bytes: int,
    topic: str = "Orders",
    *,
    waits: bool = True,
    allowed: tuple[int, ...] = (0,),
) -> None:
    """Messages to four queues in turn; each answer's code must be one of `allowed`."""
    for number in range(count):
        properties = f"UNIQ_KEY\x017F0000010B2A18B4AAC2{number:012X}\x02" + ("" if waits else "WAIT\x01false\x02")
        fields = {
            "a": "PG", "b": topic, "c": "TBW102", "d": "4", "e": str(number % 4), "f": "0",
            "g": "1750000000000", "h": "0", "i": properties, "j": "0", "k": "false", "m": "false",
        }  # fmt: skip
        answer = wire.invoke(address, wire.SEND_MESSAGE_V2, fields, bytes([97 + number % 26]) * size_bytes)
        assert answer.code in allowed, (number, answer.code, answer.remark)


def create_group(address: str, group: str) -> None:
    """Make a consumer group: RocketMQ takes no offsets of one that it does not know."""
    body = json.dumps({"groupName": group}).encode()
    answer = wire.invoke(address, UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, {}, body)
    assert answer.code == 0, answer.remark


def commit(address: str, group: str, topic: str, offsets: Mapping[int, int]) -> None:
    """Commit a group's offsets by queue."""
    for queue_id, offset in offsets.items():
        fields = {"consumerGroup": group, "topic": topic, "queueId": str(queue_id), "commitOffset": str(offset)}
        answer = wire.invoke(address, UPDATE_CONSUMER_OFFSET, fields)
        assert answer.code == 0, answer.remark


def ha_status(address: str) -> dict[str, object]:
    """The body of GET_BROKER_HA_STATUS."""
    found = parsed(wire.invoke(address, GET_BROKER_HA_STATUS).body.decode())
    assert isinstance(found, dict)
    return found


def log_end(master: str) -> int:
    """Where a master's log ends."""
    return int(str(ha_status(master)["masterCommitLogMaxOffset"]))


def is_in_step(master: str) -> bool:
    """Whether a master has a slave that lacks nothing."""
    status = ha_status(master)
    slaves = status["haConnectionInfo"]
    assert isinstance(slaves, list)
    return any(slave["diff"] == 0 and slave["inSync"] for slave in slaves)


def segments(server: Server) -> list[Path]:
    """Files of the CommitLog, oldest first."""
    directory = server.directory / "store" / "commitlog"
    return sorted(path for path in directory.iterdir() if path.name.isdigit())


def log_begin(server: Server) -> int:
    """Offset of the first byte that is kept."""
    return int(segments(server)[0].name)


def log_of(server: Server, start: int, end: int) -> bytes:
    """Bytes of the log from the begin of a segment to `end`."""
    files = [path for path in segments(server) if int(path.name) >= start]
    assert files, f"{server.name} has nothing from {start} on"
    assert int(files[0].name) == start, (files[0].name, start)
    return b"".join(path.read_bytes() for path in files)[: end - start]


def same_logs(one: Server, other: Server, end: int) -> int:
    """Compare from the later of the two begins on; where that is."""
    start = max(log_begin(one), log_begin(other))
    assert end > start
    assert log_of(one, start, end) == log_of(other, start, end)
    return start


def parsed(text: str) -> object:
    """JSON as fastjson writes it: keys that are numbers have no quotes."""
    return json.loads(_BARE_KEY.sub(r'\1"\2":', text))


def config(server: Server, name: str) -> dict[str, object]:
    """A file of ``config/``; empty while there is none, and while Apache's broker writes it in place."""
    path = server.directory / "store" / "config" / name
    try:
        found = parsed(path.read_text())
    except (FileNotFoundError, json.JSONDecodeError):
        return {}
    assert isinstance(found, dict)
    return found


def topics_of(server: Server) -> object:
    """The topics that its file holds, but for the attributes that are not set."""
    table = config(server, "topics.json").get("topicConfigTable", {})
    assert isinstance(table, dict)
    return {name: {key: value for key, value in topic.items() if value != {}} for name, topic in table.items()}


def offsets_of(server: Server) -> object:
    """The consumer offsets that its file holds."""
    return config(server, "consumerOffset.json").get("offsetTable", {})
