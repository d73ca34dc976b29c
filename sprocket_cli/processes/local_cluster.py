"""Cluster of local processes in one directory, which outlive the command that started them.

The directory holds `cluster.json` (the members), ``conf/`` (their configuration: written once, then left to the
operator), ``logs/``, ``run/`` (process ids), and a folder for each member's data.
An edge file: it starts and ends processes, and reads and writes that directory.
"""

import contextlib
import fcntl
import json
import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Final

from sprocket.common.config.properties import parse, render
from sprocket.common.errors import ConfigError, SprocketError
from sprocket.common.files.atomic_file import replace_file
from sprocket.common.processes.child_process import ChildProcess, ProcessNotStarted, isolated
from sprocket.remoting.tls.settings import TLS_VARIABLE
from sprocket_cli.processes.pid_file import PidFile
from sprocket_cli.processes.ports import WantedPort, refuse_taken
from sprocket_cli.processes.profile import REPLICA, Plan, Profile
from sprocket_cli.processes.tls_folder import TlsFolder

HOST: Final = "127.0.0.1"
# RocketMQ's ports: 9876 for the first name server, and 10911 for the first broker.
PORT_BASE: Final = 9876
_FIRST_BROKER: Final = 10911 - PORT_BASE
_FIRST_PROXY: Final = 8081 - PORT_BASE
_PROXY_PORTS: Final = 10  # ports from one proxy to the next; remoting clients connect to the proxy's port - 1
_BROKER_PORTS: Final = 10  # ports from one broker to the next; slaves connect to the broker's port + 1
_NO_PORT: Final = -1
_START_LIMIT_S: Final = 60.0
_STOP_LIMIT_S: Final = 30.0
# Controllers run in name servers: the distance of their ports from that of the first name server.
_FIRST_CONTROLLER: Final = 100
_CONTROLLER_PORTS: Final = 2  # one for brokers, one for the other controllers
_ROLE_ORDER: Final = ("PROXY", REPLICA, "MASTER", "SLAVE", "NAMESRV")


class ClusterNotStarted(SprocketError):
    """A member did not start, or did not find the others; the members that were started are stopped again."""


@dataclass(frozen=True)
class Member:
    """One server of the cluster."""

    name: str
    role: str  # NAMESRV, ASYNC_MASTER, SYNC_MASTER, SLAVE, REPLICA, PROXY
    port: int
    cluster: str = ""
    broker_name: str = ""
    broker_id: str = "0"

    @property
    def is_broker(self) -> bool:
        return self.role not in ("NAMESRV", "PROXY")

    @property
    def is_proxy(self) -> bool:
        return self.role == "PROXY"

    @property
    def is_slave(self) -> bool:
        return self.role == "SLAVE"

    @property
    def address(self) -> str:
        """``host:port``."""
        return f"{HOST}:{self.port}"


class LocalCluster:
    """Cluster in `directory`.  Raises ConfigError if there is none: `create` makes one."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory.absolute()
        try:
            facts = json.loads((self.directory / "cluster.json").read_text())
        except FileNotFoundError:
            raise ConfigError(f"no cluster in {self.directory}: sprocket cluster up PROFILE makes one") from None
        except ValueError as error:
            raise ConfigError(f"{self.directory / 'cluster.json'}: {error}") from None
        self.profile: str = facts["profile"]
        self.port_base: int = facts["portBase"]
        # The folder of certificates; None without TLS.
        self.tls: TlsFolder | None = TlsFolder(Path(facts["tls"])) if facts.get("tls") else None
        self.members = [Member(**member) for member in facts["members"]]

    @classmethod
    def create(cls, directory: Path, profile: Profile, port_base: int, tls: TlsFolder | None = None) -> "LocalCluster":
        """Create the cluster's files; with `tls`, members accept only TLS.

        Raises ConfigError if the ports exceed 65535 or `tls` has no keys, OSError if a file cannot be written.
        """
        if tls is not None:
            tls.client_settings()
        members = _members(profile.plans, port_base)
        addresses = ";".join(member.address for member in members if member.role == "NAMESRV")
        controllers = _controllers(profile.plans, port_base)
        for plan, member in zip(profile.plans, members, strict=True):
            content = _configuration(plan, member, directory.absolute(), addresses, controllers, tls)
            replace_file(_file(directory, member), content)
        facts: dict[str, object] = {
            "profile": profile.name,
            "portBase": port_base,
            "members": [asdict(member) for member in members],
        }
        if tls is not None:
            facts["tls"] = str(tls.path)
        replace_file(directory / "cluster.json", (json.dumps(facts, indent=2) + "\n").encode())
        return cls(directory)

    @property
    def name_servers(self) -> list[Member]:
        return [member for member in self.members if member.role == "NAMESRV"]

    @property
    def proxies(self) -> list[Member]:
        return [member for member in self.members if member.is_proxy]

    @property
    def masters(self) -> list[Member]:
        return [member for member in self.members if member.is_broker and not member.is_slave]

    @property
    def slaves(self) -> list[Member]:
        return [member for member in self.members if member.is_slave]

    @property
    def namesrv(self) -> str:
        """Addresses of the name servers, as clients take them."""
        return ";".join(member.address for member in self.name_servers)

    def log(self, member: Member) -> Path:
        """Return the log file of a member."""
        return self.directory / "logs" / f"{member.name}.log"

    def pid_file(self, member: Member) -> PidFile:
        """Return the file with the process id of a member."""
        return PidFile(self.directory / "run" / f"{member.name}.json")

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Keep other commands from starting or stopping members.  Raises ConfigError if another one does."""
        with (self.directory / "lock").open("ab") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise ConfigError(f"another command starts or stops the cluster in {self.directory}") from None
            yield

    def check_ports(self) -> None:
        """Raise PortTaken if a port of a member that does not run is in use; its file names the ports."""
        wanted = []
        for member in self.members:
            if self.pid_file(member).running() is None:
                path = _file(self.directory, member)
                wanted += _ports(member, _values(member, path))
        refuse_taken(wanted, f"Stop the process that listens there, or change the port in {self.directory / 'conf'}")

    def launch(self, members: Sequence[Member], started: "Started") -> None:
        """Start the `members` that do not run, and wait until they listen.  Raises ClusterNotStarted."""
        for folder in ("logs", "run"):
            (self.directory / folder).mkdir(exist_ok=True)
        mine = []
        for member in members:
            pid_file = self.pid_file(member)
            if pid_file.running() is None:
                process = self._process(member)
                process.launch()
                started.add(process, pid_file)
                pid_file.write(process.pid)
                mine.append(process)
        for process in mine:
            try:
                process.ready_line(_START_LIMIT_S)
            except ProcessNotStarted as error:
                raise ClusterNotStarted(str(error)) from None

    def stop(self, say: Callable[[str], None]) -> None:
        """Send SIGTERM to proxies, masters, slaves, then name servers; send SIGKILL to those that do not end."""
        for role in _ROLE_ORDER:
            tier = [member for member in self.members if member.role.endswith(role)]
            running = [(member, self.pid_file(member).running()) for member in tier]
            for _, identity in running:
                if identity is not None:
                    identity.send(signal.SIGTERM)
            for member, identity in running:
                if identity is not None:
                    how = "stopped"
                    if not identity.await_end(_STOP_LIMIT_S):
                        identity.send(signal.SIGKILL)
                        identity.await_end(_STOP_LIMIT_S)
                        how = f"killed, it did not stop within {_STOP_LIMIT_S:g} s"
                    say(f"{member.name} {how}")
                self.pid_file(member).remove()

    def _process(self, member: Member) -> ChildProcess:
        kind, flag = ("proxy", "-pc") if member.is_proxy else ("broker" if member.is_broker else "namesrv", "-c")
        command = isolated("sprocket_cli", kind, "--json", flag, str(_file(self.directory, member)))
        # Its file has no keys for the connections to brokers: RocketMQ's proxy has them from the environment too.
        more = {TLS_VARIABLE: str(self.tls.path)} if self.tls is not None and member.is_proxy else None
        return ChildProcess(member.name, command, self.directory, self.log(member), is_detached=True, environment=more)


class Started:
    """Processes that one command has started: kept if all start, else stopped."""

    def __init__(self) -> None:
        self._processes: list[tuple[ChildProcess, PidFile]] = []

    def add(self, process: ChildProcess, pid_file: PidFile) -> None:
        """Add a process."""
        self._processes.append((process, pid_file))

    @property
    def names(self) -> list[str]:
        """Names of the members."""
        return [process.name for process, _ in self._processes]

    def keep(self) -> None:
        """Leave all processes running."""
        for process, _ in self._processes:
            process.release()

    @contextlib.contextmanager
    def undone_on_failure(self) -> Iterator[None]:
        """Stop the processes, the last one first, if the block fails or is interrupted."""
        try:
            yield
        except BaseException:
            for process, pid_file in reversed(self._processes):
                process.end(signal.SIGTERM)
                pid_file.remove()
            raise


def check_ports_of(profile: Profile, port_base: int) -> None:
    """Raise PortTaken if a port of a new cluster is in use, ConfigError if the ports exceed 65535."""
    wanted = [port for member in _members(profile.plans, port_base) for port in _ports(member, {})]
    refuse_taken(wanted, "Stop the process that listens there, or give another --port-base")


def _ports(member: Member, values: Mapping[str, str]) -> list[WantedPort]:
    """Return the ports of `member` in the values of its file; its own start refuses a value that is no port."""
    own = {"grpcServerPort" if member.is_proxy else "listenPort": member.port}
    own |= {"haListenPort": member.port + 1} if member.is_broker else {}
    own |= {"remotingListenPort": member.port - 1} if member.is_proxy else {}
    host = values.get("bindAddress", HOST).strip()
    texts = {key: values.get(key, str(port)).strip() for key, port in own.items()}
    return [
        WantedPort(member.name, key, host, int(text))
        for key, text in texts.items()
        if text.isdecimal() and 0 < int(text) < 65536
    ]


def _values(member: Member, path: Path) -> dict[str, str]:
    """Return the values of a member's file; none of a file that is not there or that its own start refuses."""
    if not path.exists():
        return {}
    if not member.is_proxy:
        return {entry.key: entry.value for entry in parse(path.read_bytes(), str(path))}
    with contextlib.suppress(ValueError):
        table = json.loads(path.read_bytes())
        if isinstance(table, dict):
            return {key: str(value) for key, value in table.items()}
    return {}


def _members(plans: Sequence[Plan], port_base: int) -> list[Member]:
    servers = [plan for plan in plans if plan.role == "NAMESRV"]
    proxies = [plan for plan in plans if plan.role == "PROXY"]
    brokers = [plan for plan in plans if plan.is_broker]
    ports = {plan.name: port_base + index for index, plan in enumerate(servers)}
    ports |= {plan.name: port_base + _FIRST_BROKER + _BROKER_PORTS * index for index, plan in enumerate(brokers)}
    ports |= {plan.name: port_base + _FIRST_PROXY + _PROXY_PORTS * index for index, plan in enumerate(proxies)}
    if min(ports.values()) < 2:
        raise ConfigError(f"--port-base {port_base}: the first proxy would listen on {min(ports.values())}")
    if max(ports.values()) >= 65535:
        raise ConfigError(f"--port-base {port_base}: the last broker would listen on {max(ports.values())}")
    own = {field.name for field in fields(Member)} - {"port"}
    return [Member(port=ports[plan.name], **{name: getattr(plan, name) for name in own}) for plan in plans]


def _controllers(plans: Sequence[Plan], port_base: int) -> dict[str, str]:
    """Return the addresses of the controllers for brokers, by the names of their name servers."""
    names = [plan.name for plan in plans if plan.has_controller]
    first = port_base + _FIRST_CONTROLLER
    return {name: f"{HOST}:{first + _CONTROLLER_PORTS * index}" for index, name in enumerate(names)}


def _of_controllers(plan: Plan, data: Path, controllers: Mapping[str, str]) -> dict[str, str]:
    """Return the keys by which a member finds the controllers, or is one."""
    if plan.role == REPLICA:
        return {"controllerAddr": ";".join(controllers.values())}
    if not plan.has_controller:
        return {}
    ids = {name: f"n{number}" for number, name in enumerate(controllers)}
    return {
        "controllerDLegerPeers": ";".join(f"{ids[name]}-{address}" for name, address in controllers.items()),
        "controllerDLegerSelfId": ids[plan.name],
        "controllerRaftPortOffset": "1",
        "controllerStorePath": str(data / "controller"),
    }


def _file(directory: Path, member: Member) -> Path:
    return directory.absolute() / "conf" / f"{member.name}.{'json' if member.is_proxy else 'properties'}"


def _configuration(
    plan: Plan, member: Member, directory: Path, name_servers: str, controllers: Mapping[str, str],
    tls: TlsFolder | None = None,
) -> bytes:  # fmt: skip
    """Return the profile's file with the member's own ports, addresses and folders."""
    if member.is_proxy:
        table = json.loads(plan.content) | {"bindAddress": HOST, "grpcServerPort": member.port}
        if table.get("remotingListenPort") != _NO_PORT:
            table["remotingListenPort"] = member.port - 1
        if tls is not None:
            table |= {"tlsServerMode": "enforcing", "tlsTestModeEnable": False}
            table |= {"tlsCertPath": str(tls.certificate_file("broker")), "tlsKeyPath": str(tls.key_file("broker"))}
        return (json.dumps(table | {"namesrvAddr": name_servers}, indent=2) + "\n").encode()
    own = {"bindAddress": HOST, "listenPort": str(member.port)}
    data = directory / member.name
    if member.is_broker:
        own |= {"brokerIP1": HOST, "brokerIP2": HOST, "namesrvAddr": name_servers}
        own |= {"haListenPort": str(member.port + 1), "storePathRootDir": str(data / "store")}
        own["storePathCommitLog"] = str(data / "store" / "commitlog")
    else:
        own["kvConfigPath"] = str(data / "kvConfig.json")
    own |= _of_controllers(plan, data, controllers)
    if tls is not None:
        keys = tls.properties("broker" if member.is_broker else "namesrv")
        own |= {"tls.server.mode": "enforcing", "tls.config.file": str(keys)}
        if (member.is_broker or plan.has_controller) and tls.replication_secret.is_file():
            own["haSecretFile"] = str(tls.replication_secret)
    given = {entry.key: entry.value for entry in parse(plan.content)}
    if given.keys() & own.keys():
        head = render({key: value for key, value in given.items() if key not in own})
    else:
        head = plan.content if plan.content.endswith("\n") or not plan.content else f"{plan.content}\n"
    return f"{head}# So that it lives beside others on this machine:\n{render(own)}".encode("iso-8859-1")
