"""Deployments: code and its versions in compacted topics of the cluster, and what instances report.

Who may send to `DEPLOYMENTS` and `CODE` may deploy.  Who runs functions reads them, and sends to `STATUS`.
"""

import hashlib
import hmac
import tempfile
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Any, Final

import msgspec

from sprocket.client.admin.admin_client import AdminClient
from sprocket.client.admin.admin_requests import none_if
from sprocket.client.connect import Connection
from sprocket.client.errors import ClientError, TopicNotFound
from sprocket.client.typed.table import Table
from sprocket.common.errors import ConfigError
from sprocket.functions.declaration import Function
from sprocket.functions.package import digest, load_functions
from sprocket.remoting.bodies.route import MASTER_ID
from sprocket.remoting.bodies.topic import TopicConfig
from sprocket.remoting.codes import ResponseCode
from sprocket.remoting.message.namespaces import with_namespace
from sprocket.remoting.message.topic_names import dlq_topic

DEPLOYMENTS: Final = "sprocket-functions"
CODE: Final = "sprocket-function-code"
STATUS: Final = "sprocket-function-status"
_MAX_VERSIONS: Final = 5
# Without a report for this time an instance counts as lost.
LOST_MS: Final = 30_000


class Described(msgspec.Struct, frozen=True):
    """What the cluster has to know of a function."""

    name: str
    group: str
    inputs: list[str]
    output: str | None
    changelog: str


class Version(msgspec.Struct, frozen=True):
    """One version of the code; `signature` is empty if it was deployed without a key."""

    number: int
    sha256: str
    module: str
    functions: list[Described]
    deployed_ms: int
    deployed_by: str
    signature: str = ""


class Deployment(msgspec.Struct, frozen=True):
    """A package that runs, the newest version last; limits are those of each instance, 0: none."""

    name: str
    current: int
    versions: list[Version]
    instances: int = 1  # on each machine
    memory_mb: int = 0
    cpus: int = 0
    is_stopped: bool = False

    def version(self, number: int) -> Version:
        """Raises ConfigError if there is no such version."""
        for version in self.versions:
            if version.number == number:
                return version
        numbers = [version.number for version in self.versions]
        raise ConfigError(f"{self.name} has no version {number}; there are {numbers}")

    @property
    def last_number(self) -> int:
        """Number of the newest version, 0 without one."""
        return max((version.number for version in self.versions), default=0)

    @property
    def before(self) -> int:
        """Number of the version before the current one.  Raises ConfigError if there is none."""
        older = [version.number for version in self.versions if version.number < self.current]
        if not older:
            raise ConfigError(f"{self.name} has no version before {self.current}")
        return max(older)

    def with_version(self, version: Version) -> "Deployment":
        """Return it with a new version, which is the current one; the oldest ones above the limit are left out."""
        versions = [*self.versions, version][-_MAX_VERSIONS:]
        return msgspec.structs.replace(self, versions=versions, current=version.number, is_stopped=False)


class Status(msgspec.Struct):
    """Last report of an instance; `index` -1 is the supervisor of a machine, whose `log` has the ends of their logs."""

    deployment: str
    machine: str
    index: int
    version: int
    state: str
    at_ms: int
    pid: int = 0
    partitions: int = 0
    counts: dict[str, int] = {}
    error: str = ""
    log: str = ""

    @property
    def key(self) -> str:
        """Key of the report."""
        return status_key(self.deployment, self.machine, self.index)

    @property
    def is_machine(self) -> bool:
        """Whether it is that of a supervisor."""
        return self.index < 0


def status_key(deployment: str, machine: str, index: int) -> str:
    """Return the key of a report."""
    return f"{deployment}/{machine}/{index}"


def described(package: bytes, module: str) -> list[Described]:
    """Import a package, and return what the cluster has to know of its functions.  Raises as `load_functions`."""
    with tempfile.NamedTemporaryFile(suffix=".zip") as file:
        file.write(package)
        file.flush()
        functions = load_functions(Path(file.name), module)
    return [Described(one.name, one.group, list(one.inputs), one.output, one.changelog) for one in functions]


def sign(key: bytes, name: str, version: Version) -> str:
    """Return the signature (HMAC-SHA256, hex) of one version of a deployment: no other code, name or number has it."""
    signed = f"sprocket-function\n{name}\n{version.number}\n{version.module}\n{version.sha256}"
    return hmac.new(key, signed.encode(), hashlib.sha256).hexdigest()


def code_key(name: str, version: int) -> str:
    """Return the key of a package."""
    return f"{name}/{version}"


async def create_topics(
    admin: AdminClient, functions: Iterable[Described | Function], namespace: str = ""
) -> None:  # fmt: skip
    """Create changelog and dead-letter topic of each function, or let them grow, on the brokers of its inputs.

    The changelog has a queue for each input queue there.  `namespace` is that of the functions' connections, as names
    of requests to `admin` are whole.  Raises ClientError, also for an input topic that is not there, or is static.
    """
    whole = partial(with_namespace, namespace)
    for function in functions:
        queues: dict[str, int] = {}
        masters: dict[str, str] = {}
        for topic in function.inputs:
            route = await none_if(ResponseCode.TOPIC_NOT_EXIST, admin.topic_route(whole(topic)))
            if route is None:
                advice = f"create it with `sprocket topic create {whole(topic)}`"
                raise ClientError(f"the input topic {topic} of {function.name} does not exist; {advice}")
            if route.topic_queue_mapping_by_broker:
                raise ClientError(f"{topic} is a static topic: its queues move, so functions cannot read it")
            for data in route.queue_datas:
                queues[data.broker_name] = max(queues.get(data.broker_name, 0), data.read_queue_nums)
            for broker in route.broker_datas:
                if MASTER_ID in broker.broker_addrs:
                    masters[broker.broker_name] = broker.broker_addrs[MASTER_ID]
        for broker_name, count in queues.items():
            if broker_name not in masters:
                raise ClientError(f"broker {broker_name} has no master now; try again when it has")
            await admin.create_compacted_topic(masters[broker_name], whole(function.changelog), count)
            dead_letters = whole(dlq_topic(function.group))
            if await admin.topic_config(masters[broker_name], dead_letters) is None:
                await admin.create_topic(masters[broker_name], TopicConfig(dead_letters, 1, 1))


async def create_registry(admin: AdminClient, namespace: str = "") -> None:
    """Create the topics of deployments in `namespace`, if they are not there.  Raises AdminError."""
    for topic in (DEPLOYMENTS, CODE, STATUS):
        await admin.create_table_topic(with_namespace(namespace, topic), queues=1)


class NothingDeployed(ConfigError):
    """The cluster, or the namespace, has no topic of deployments."""


class Registry:
    """Deployments of a cluster, or of the connection's namespace; call `start` first.  Methods raise as sends do."""

    def __init__(self, connection: Connection) -> None:
        self.admin = connection.admin
        self.table: Table[Deployment] = connection.table(DEPLOYMENTS, Deployment)
        self._connection = connection
        self._statuses = connection.table(STATUS, Status)

    async def start(self) -> None:
        """Read the deployments.  Raises NothingDeployed, and as `Table.start`."""
        try:
            await self.table.start()
        except TopicNotFound:
            raise NothingDeployed(
                f"nothing is deployed here yet; do it with `sprocket function deploy FILE`, or start the brokers that "
                f"have topic {DEPLOYMENTS}"
            ) from None

    def find(self, name: str) -> Deployment:
        """Return a deployment.  Raises ConfigError if there is none."""
        found = self.table.get(name)
        if found is None:
            raise ConfigError(f"no function is deployed as {name}; `sprocket function list` shows them")
        return found

    def check_groups(self, name: str, functions: Iterable[Described]) -> None:
        """Raises ConfigError if another deployment than `name` has a function of the same group."""
        groups = {one.group for one in functions}
        for other in self.table.values():
            for one in other.version(other.current).functions if other.name != name else ():
                if one.group in groups:
                    raise ConfigError(
                        f"{other.name} has a function of group {one.group}; delete it, or change the group"
                    )

    async def change(self, name: str, **changes: Any) -> None:
        """Change fields of a deployment.  Raises ConfigError if there is none."""
        await self.table.put(name, msgspec.structs.replace(self.find(name), **changes))

    async def deploy(self, deployment: Deployment, package: bytes) -> None:
        """Store code and deployment, and remove code that no version has any more."""
        old = self.table.get(deployment.name)
        codes = self._connection.table(CODE, bytes)
        await codes.put(code_key(deployment.name, deployment.current), package)
        await self.table.put(deployment.name, deployment)
        kept = {version.number for version in deployment.versions}
        for version in () if old is None else old.versions:
            if version.number not in kept:
                await codes.delete(code_key(deployment.name, version.number))

    async def delete(self, name: str) -> None:
        """Remove a deployment, its code and its reports; topics and state of its functions stay."""
        deployment, reports = self.find(name), await self.reports(name)
        await self.table.delete(name)
        codes = self._connection.table(CODE, bytes)
        for version in deployment.versions:
            await codes.delete(code_key(name, version.number))
        for report in reports:
            await self._statuses.delete(report.key)

    async def code(self, deployment: Deployment, number: int) -> bytes:
        """Return the package of a version.  Raises ConfigError if it is not the one that was deployed."""
        version = deployment.version(number)
        async with self._connection.table(CODE, bytes) as packages:
            package = packages.get(code_key(deployment.name, number), b"")
        if digest(package) != version.sha256:
            raise ConfigError(
                f"the code of {deployment.name} version {number} is not what was deployed; deploy it again"
            )
        return package

    async def reports(self, name: str) -> list[Status]:
        """Return the last report of each instance of a deployment.  Raises ConfigError if there is none."""
        self.find(name)
        async with self._connection.table(STATUS, Status) as reports:
            return [one for _, one in sorted(reports.items()) if one.deployment == name]

    async def report(self, status: Status) -> None:
        """Store a report."""
        await self._statuses.put(status.key, status)

    async def forget(self, name: str, machine: str, index: int) -> None:
        """Delete a report."""
        await self._statuses.delete(status_key(name, machine, index))
