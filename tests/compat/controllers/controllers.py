"""Controllers of either kind with Apache's brokers in controller mode, and a stock client beside them."""

import contextlib
import json
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, Self

from tests.compat import maven, ports, wire
from tests.compat.cluster import ApacheCluster, Server
from tests.compat.replication.replicas import Kind, Replicas, until

GROUP: Final = "broker-a"
TOPIC: Final = "Orders"
GET_METADATA: Final = 1005
GET_REPLICA_INFO: Final = 1004
GET_SYNC_STATE_DATA: Final = 1006


class ControllerCluster(Replicas):
    """A name server of ours, controllers of either kind, and brokers of Apache; all end with this context."""

    def __init__(
        self,
        directory: Path,
        kind: Kind = "sprocket",
        count: int = 3,
        properties: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(directory)
        self._root = directory
        self.kind = kind
        chosen = [ports.free_port() for _ in range(count)]
        self.peers = ";".join(f"n{number}-127.0.0.1:{port}" for number, port in enumerate(chosen))
        self.controllers = [self._controller(number, port, properties or {}) for number, port in enumerate(chosen)]

    def _controller(self, number: int, port: int, properties: Mapping[str, str]) -> Server:
        home = self._root / f"{self.kind}-controller-{number}"
        home.mkdir(parents=True)
        content = {
            "controllerDLegerGroup": "group1",
            "controllerDLegerPeers": self.peers,
            "controllerDLegerSelfId": f"n{number}",
            "controllerStorePath": str(home / "store"),
            **properties,
        }
        if self.kind == "apache":
            content["mappedFileSize"] = str(1 << 20)
        else:
            content["controllerRaftPortOffset"] = "1"
        configuration = home / "controller.conf"
        configuration.write_text("".join(f"{key}={value}\n" for key, value in content.items()))
        if self.kind == "apache":
            made = ApacheControllers(self._root / "apache-controllers" / str(number), brokers=0, name_servers=0)
            command, environment = made.controller_command(configuration), made.environment(home)
        else:
            command = [str(Path(sys.executable).parent / "mqcontroller"), "-c", str(configuration)]
            environment = {}
        return self.stack(Server(f"controller-{number}", f"127.0.0.1:{port}", command, home, environment))

    def replace_controllers(self, kind: Kind) -> None:
        """Put controllers of the other kind, not started yet, at the addresses of those that have been stopped."""
        self.kind = kind
        chosen = [int(server.address.rpartition(":")[2]) for server in self.controllers]
        self.controllers = [self._controller(number, port, {}) for number, port in enumerate(chosen)]

    @property
    def controller_addresses(self) -> str:
        """As `controllerAddr` wants it."""
        return ";".join(server.address for server in self.controllers)

    def __enter__(self) -> Self:
        super().__enter__()
        return self

    def start_controllers(self) -> None:
        """Start all, and wait until they have a leader."""
        for server in self.controllers:
            server.start()
        until(self.leader, "the controllers have a leader")

    def leader(self) -> Server | None:
        """The controller that the living ones call their leader, if those that know one agree."""
        named: set[str | None] = set()
        for server in self.controllers:
            if server.process is not None and server.process.poll() is None:
                with contextlib.suppress(OSError, wire.WireError):
                    named.add(wire.invoke(server.address, GET_METADATA).fields.get("controllerLeaderAddress"))
        named.discard(None)
        alive = {one.address: one for one in self.controllers if one.process is not None and one.process.poll() is None}
        return alive.get(str(next(iter(named)))) if len(named) == 1 else None

    @staticmethod
    def knows_leader(controller: Server) -> bool:
        """Whether a controller that has just started has joined the others."""
        with contextlib.suppress(OSError, wire.WireError):
            return bool(wire.invoke(controller.address, GET_METADATA).fields.get("controllerLeaderId"))
        return False

    def add_broker(self, number: int, kind: Kind = "apache", group: str = GROUP, **properties: str) -> Server:
        """A broker of the group, in controller mode, not started yet."""
        mode = {
            "enableControllerMode": "true",
            "controllerAddr": self.controller_addresses,
            "allAckInSyncStateSet": "true",
            "brokerIP1": "127.0.0.1",
        }
        # -1: the controllers assign the id.
        broker = self.add(kind, group, -1 - number, role="SLAVE", **(mode | properties))
        configuration = broker.directory / "broker.conf"
        configuration.write_text(configuration.read_text().replace(f"brokerId={-1 - number}\n", "brokerId=-1\n"))
        return broker

    def add_sprocket_broker(self, number: int, **properties: str) -> Server:
        """A broker of ours in the group, in controller mode, not started yet."""
        mode = {"enableControllerMode": "true", "controllerAddr": self.controller_addresses, "inSyncReplicas": "2"}
        return self.add("sprocket", GROUP, number, role="ASYNC_MASTER", **(mode | properties))

    def replica_info(self, group: str = GROUP) -> dict[str, str]:
        """What the leader says of a group; empty without a leader or a group."""
        leader = self.leader()
        if leader is None:
            return {}
        answer = wire.invoke(leader.address, GET_REPLICA_INFO, {"brokerName": group})
        if answer.code != 0:
            return {}
        return {**answer.fields, "body": answer.body.decode()}

    def master(self, brokers: Sequence[Server], group: str = GROUP) -> Server | None:
        """The broker that the controllers call the master."""
        address = self.replica_info(group).get("masterAddress")
        return next((one for one in brokers if one.address == address), None)

    def in_sync(self, group: str = GROUP) -> int:
        """How many replicas are in sync."""
        ids = self.replica_info(group).get("body", "").partition('"syncStateSet":[')[2].partition("]")[0]
        return len([one for one in ids.split(",") if one])

    def routed_master(self) -> str:
        """Address of the group's master as clients are told; empty if there is none."""
        name_server = self.cluster.name_servers[0].address
        route = wire.invoke(name_server, wire.GET_ROUTEINFO_BY_TOPIC, {"topic": TOPIC})
        if route.code != 0:
            return ""
        return next((data["brokerAddrs"].get("0", "") for data in json.loads(route.body)["brokerDatas"]), "")


class ApacheControllers(ApacheCluster):
    """The command of Apache's controller."""

    def controller_command(self, configuration: Path) -> Sequence[str]:
        """argv of a controller."""
        heap = ("-Xms64m", "-Xmx256m", *maven.SHORT_LIFE)
        return self._java(configuration, heap, "org.apache.rocketmq.controller.ControllerStartup")


class StockClient:
    """`Orders.java` in a process of its own: what it sent and got, with the times in ms.  Ends with its context."""

    def __init__(self, home: Path, name_servers: str) -> None:
        home.mkdir(parents=True)
        source = Path(__file__).parents[1] / "java" / "failover" / "Orders.java"
        command = [
            *maven.short_java(), "-Xmx256m", f"-Duser.home={home}", f"-Drocketmq.client.logRoot={home}",
            "-cp", maven.compiled(source, maven.client_classpath("5.3.3")), source.stem, name_servers, TOPIC,
        ]  # fmt: skip
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=home
        )
        self.sent: dict[str, int] = {}
        self.failed: dict[str, int] = {}
        self.got: dict[str, int] = {}
        self.other: list[str] = []
        self.is_done = False
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def __enter__(self) -> "StockClient":
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()
        self._reader.join(10)

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            word, _, rest = line.rstrip("\n").partition("\t")
            body, _, at_ms = rest.partition("\t")
            tables = {"SENT": self.sent, "WEAK": self.failed, "FAILED": self.failed, "GOT": self.got}
            if word in tables:
                tables[word].setdefault(body, int(at_ms))
            elif word == "DONE":
                self.is_done = True
            else:
                self.other.append(line)

    def has_got(self, count: int) -> bool:
        """Whether the consumer has seen that many messages.  Fails if the JVM has ended."""
        assert self._process.poll() is None, "".join(self.other[-50:])
        return len(self.got) >= count

    def stop_sending(self) -> None:
        """Let the producer end after its current message."""
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        until(lambda: self.is_done, "the producer has ended")

    def sends_again(self, since_ms: int) -> int:
        """Wait for a message that is acknowledged after `since_ms`; return how many ms later that was."""
        until(lambda: any(at > since_ms for at in list(self.sent.values())), "a message is acknowledged again")
        return min(at for at in list(self.sent.values()) if at > since_ms) - since_ms


def now_ms() -> int:
    return time.time_ns() // 1_000_000
