"""Checks of `sprocket doctor`: pure functions from facts to findings."""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from sprocket.remoting.message.namespaces import TENANT_SEPARATOR, namespace_of
from sprocket_cli.doctor.facts import Cluster, Facts, Local, Machine

if TYPE_CHECKING:
    from sprocket.remoting.bodies.quota import Quota

_GIB: Final = 1024**3
_MASTER_ID: Final = 0
# What a broker asks for: three descriptors per segment and queue file, and one per connection.
_OPEN_FILES: Final = 65_536
_MAP_COUNT: Final = 262_144
_MEMORY_BYTES: Final = _GIB
_LITTLE_FREE: Final = 0.15
_SLOW_SYNC_MS: Final = 20.0
_SKEW_MS: Final = 1_000.0
_LARGE_SKEW_MS: Final = 10_000.0
_DAYS: Final = 30
_NETWORK_FILE_SYSTEMS: Final = ("nfs", "nfs4", "cifs", "smb3", "fuse.sshfs", "9p")
# Dimensions of quotas that lie within others.
_JUDGED: Final = ("topic", "group", "namespace")
_MEMORY_FILE_SYSTEMS: Final = ("tmpfs", "ramfs")


class Level(StrEnum):
    """How bad a finding is."""

    OK = "ok"
    WARNING = "warning"
    FAILURE = "failure"


@dataclass(frozen=True)
class Finding:
    """Result of one check.  `advice` says what to do; empty if nothing."""

    check: str
    level: Level
    text: str
    advice: str = ""


def findings(facts: Facts) -> list[Finding]:
    """Return what all checks find, in the order of the checks; each check gives one finding or more."""
    found = [] if facts.cluster is None else list(_health(facts.cluster))
    found += _limits(facts.machine)
    if facts.local is not None:
        for check in _LOCAL:
            found += check(facts.local)
    if facts.cluster is not None:
        for look in _CLUSTER:
            found += look(facts.cluster)
    return found


def worst(found: list[Finding]) -> Level:
    """Return the worst level; OK without findings."""
    levels = {finding.level for finding in found}
    return next((level for level in (Level.FAILURE, Level.WARNING) if level in levels), Level.OK)


def _limits(machine: Machine) -> Iterator[Finding]:
    if machine.open_files < _OPEN_FILES:
        yield Finding(
            "limits", Level.WARNING, f"a process may open {machine.open_files} files; a broker may need {_OPEN_FILES}",
            f"set LimitNOFILE={_OPEN_FILES} in the systemd unit, or `ulimit -n` for its user",
        )  # fmt: skip
    else:
        yield Finding("limits", Level.OK, f"a process may open {machine.open_files} files")
    if machine.max_map_count is not None and machine.max_map_count < _MAP_COUNT:
        text = f"vm.max_map_count is {machine.max_map_count}: a store of many queues maps more files"
        yield Finding("limits", Level.WARNING, text, f"sysctl -w vm.max_map_count={_MAP_COUNT}")
    available = machine.memory_available_bytes
    if available is not None and available < _MEMORY_BYTES:
        text = f"{available / _GIB:.1f} GiB of memory are available: reads of the log will wait for the disk"
        yield Finding("memory", Level.WARNING, text, "give the machine more memory, or stop other programs")
    elif available is not None:
        yield Finding("memory", Level.OK, f"{available / _GIB:.1f} GiB of memory are available")


def _disk(local: Local) -> Iterator[Finding]:
    store = local.store
    if store.error is not None:
        advice = "create the folder for the broker's user, or change storePathRootDir"
        yield Finding("disk", Level.FAILURE, f"{store.path}: cannot be written: {store.error}", advice)
        return
    free = store.free_bytes / max(1, store.total_bytes)
    text = f"{store.path}: {store.free_bytes / _GIB:.1f} GiB free ({free:.0%}) on {store.file_system}"
    segment_bytes = int(local.keys.get("mappedFileSizeCommitLog", "0"))
    if store.free_bytes < 2 * segment_bytes:
        yield Finding("disk", Level.FAILURE, f"{text}: less than two segments", "free space, or use a larger disk")
    elif free < _LITTLE_FREE:
        advice = "free space, or lower fileReservedTime: near diskMaxUsedSpaceRatio old segments are removed early"
        yield Finding("disk", Level.WARNING, text, advice)
    else:
        yield Finding("disk", Level.OK, text)
    if store.file_system in _NETWORK_FILE_SYSTEMS:
        advice = "use a local disk: locks and syncs of a network file system do not hold what a store needs"
        yield Finding("disk", Level.FAILURE, f"{store.path}: lies on {store.file_system}", advice)
    if store.file_system in _MEMORY_FILE_SYSTEMS:
        advice = "use a disk: every message is lost when the machine stops"
        yield Finding("disk", Level.FAILURE, f"{store.path}: lies in memory ({store.file_system})", advice)
    if store.sync_ms is not None:
        is_slow = store.sync_ms > _SLOW_SYNC_MS
        advice = "with SYNC_FLUSH every send waits for a sync: use a faster disk, or ASYNC_FLUSH with a slave"
        level = Level.WARNING if is_slow else Level.OK
        yield Finding("disk", level, f"a small sync takes {store.sync_ms:.1f} ms", advice if is_slow else "")


def _ports(local: Local) -> Iterator[Finding]:
    taken = [port for port in local.ports if port.is_taken]
    if local.store.is_in_use:
        yield Finding("ports", Level.OK, "a broker runs on this store")
        return
    for port in taken:
        text = f"{port.key}: port {port.number} is taken, and no broker runs on this store"
        yield Finding("ports", Level.FAILURE, text, f"stop the program there (`ss -ltnp`), or change {port.key}")
    if not taken:
        yield Finding("ports", Level.OK, ", ".join(f"{port.key} {port.number}" for port in local.ports) + " are free")


def _certificates(local: Local) -> Iterator[Finding]:
    for certificate in local.certificates:
        place = f"{certificate.key}: {certificate.path}"
        days = certificate.days_left
        renew = "renew it: `sprocket tls renew`, or your own authority; servers read the new file without a restart"
        if days is None:
            advice = "give the PEM file, readable for the broker's user"
            yield Finding("certificates", Level.FAILURE, f"{place}: {certificate.error}", advice)
        elif days < 0:
            yield Finding("certificates", Level.FAILURE, f"{place}: ended {-days:.0f} days ago", renew)
        else:
            is_short = days < _DAYS
            level = Level.WARNING if is_short else Level.OK
            yield Finding("certificates", level, f"{place}: ends in {days:.0f} days", renew if is_short else "")


def _local_settings(local: Local) -> Iterator[Finding]:
    yield from _settings("this configuration", local.keys)


def _settings(where: str, keys: Mapping[str, str]) -> Iterator[Finding]:
    """Yield weak settings of one broker.  A key that is missing is unknown, and not judged."""
    found = list(_weak(keys))
    for text, advice in found:
        yield Finding("settings", Level.WARNING, f"{where}: {text}", advice)
    if not found and keys:
        yield Finding("settings", Level.OK, f"{where}: no weak setting")


def _weak(keys: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    def is_set(key: str, value: str) -> bool:
        return keys.get(key, "").lower() == value

    if is_set("aclEnable", "false") and is_set("authenticationEnabled", "false"):
        yield (
            "no access control: everyone who reaches the port may read, write and delete",
            ("set authenticationEnabled=true and authorizationEnabled=true, see docs/security.md"),
        )
    if is_set("tls.server.mode", "disabled"):
        yield "TLS is off: passwords and messages pass in clear", "create certificates with `sprocket tls create`"
    elif is_set("tls.server.mode", "permissive"):
        yield "TLS is optional: clients may connect in clear", "set tls.server.mode=enforcing when all clients use TLS"
    role = keys.get("brokerRole", "")
    if is_set("flushDiskType", "async_flush") and role == "ASYNC_MASTER":
        yield (
            "ASYNC_FLUSH and ASYNC_MASTER: a power cut or a lost disk loses acknowledged messages",
            ("set flushDiskType=SYNC_FLUSH, or run a slave with brokerRole=SYNC_MASTER"),
        )
    if is_set("autoCreateTopicEnable", "true"):
        yield (
            "autoCreateTopicEnable: a misspelled topic is created by its first message",
            ("set autoCreateTopicEnable=false and create topics with mqadmin updateTopic"),
        )


def _name_servers(cluster: Cluster) -> Iterator[Finding]:
    good = [server for server in cluster.name_servers if server.error is None]
    for server in cluster.name_servers:
        if server.error is not None:
            level = Level.WARNING if good else Level.FAILURE
            advice = "start it, or take its address out of namesrvAddr of brokers and clients"
            yield Finding("name servers", level, f"{server.address}: does not answer: {server.error}", advice)
    if len({server.brokers for server in good}) > 1:
        every = frozenset[str]().union(*(server.brokers for server in good))
        for server in good:
            if missing := every - server.brokers:
                text = f"{server.address}: does not know {', '.join(sorted(missing))}, another name server does"
                yield Finding("name servers", Level.WARNING, text, "give these brokers all name servers in namesrvAddr")
    if len(cluster.name_servers) == 1:
        yield Finding(
            "name servers", Level.WARNING, "there is one name server: without it no client starts",
            "run a second one on another machine",
        )  # fmt: skip
    elif len(good) == len(cluster.name_servers):
        yield Finding("name servers", Level.OK, f"all {len(good)} answer")


def _health(cluster: Cluster) -> Iterator[Finding]:
    """Yield first whether sends are confirmed, then which members are missing."""
    from sprocket.client.admin.cluster_health import judge

    health = judge(cluster.look, (), cluster.now_ms)
    yield Finding(
        "sends", Level.OK if health.confirms_sends else Level.FAILURE, health.headline,
        "" if health.confirms_sends else "see the failures below",
    )  # fmt: skip
    for trouble in health.troubles:
        level = Level.WARNING if trouble.subject == "replication" else Level.FAILURE
        yield Finding(trouble.subject, level, trouble.what, trouble.advice)
    if health.groups and not any(group.gone for group in health.groups):
        count = sum(group.replicas for group in health.groups)
        yield Finding("replicas", Level.OK, f"all {count} that should be there answer at the address in their routes")


def _routes(cluster: Cluster) -> Iterator[Finding]:
    if not cluster.brokers and any(server.error is None for server in cluster.name_servers):
        yield Finding("routes", Level.FAILURE, "no broker is registered", "start a broker with this namesrvAddr")
    groups = defaultdict(set)
    for broker in cluster.brokers:
        groups[broker.name].add(broker.broker_id)
    for name, ids in sorted(groups.items()):
        if ids == {_MASTER_ID}:
            text = f"{name}: has no slave: losing its disk loses messages"
            yield Finding("routes", Level.WARNING, text, "add a slave, and back the store up: sprocket store backup")


def _clocks(cluster: Cluster) -> Iterator[Finding]:
    told = [broker for broker in cluster.brokers if broker.skew_ms is not None]
    wrong = False
    for broker in told:
        assert broker.skew_ms is not None
        surely_ms = max(0.0, abs(broker.skew_ms) - broker.skew_error_ms)
        if surely_ms > _SKEW_MS:
            wrong = True
            level = Level.FAILURE if surely_ms > _LARGE_SKEW_MS else Level.WARNING
            apart = f"its clock differs from this machine's by {surely_ms / 1000:.0f} s or more"
            yield Finding(
                "clock", level, f"{broker.name} id {broker.broker_id}: {apart}", "run chrony or ntpd on both machines"
            )
    if told and not wrong:
        yield Finding("clock", Level.OK, f"{len(told)} brokers' clocks agree with this machine's, as far as they tell")


def _versions(cluster: Cluster) -> Iterator[Finding]:
    versions = {
        broker.address: broker.sprocket_version or f"RocketMQ {broker.version}"
        for broker in cluster.brokers
        if broker.version or broker.sprocket_version
    }
    if len(set(versions.values())) > 1:
        listed = ", ".join(f"{address} {version}" for address, version in sorted(versions.items()))
        yield Finding("versions", Level.WARNING, f"brokers differ: {listed}", "finish the upgrade: one version for all")
    elif versions:
        yield Finding("versions", Level.OK, f"all brokers run {next(iter(versions.values()))}")


def _cluster_settings(cluster: Cluster) -> Iterator[Finding]:
    for broker in cluster.brokers:
        yield from _settings(f"{broker.name} id {broker.broker_id}", broker.keys)


_LOCAL: Final[tuple[Callable[[Local], Iterator[Finding]], ...]] = (_disk, _ports, _certificates, _local_settings)


def _quotas(cluster: Cluster) -> Iterator[Finding]:
    """Judge quotas that differ, name unknown topics, or cannot be reached.  Without quotas there is no finding."""
    masters = [one for one in cluster.brokers if one.broker_id == _MASTER_ID and one.quotas is not None]
    if not any(one.quotas for one in masters):
        return
    first, rest = masters[0], masters[1:]
    found = list(_contradictions(first.quotas or {}, cluster.topics))
    for other in rest:
        if other.quotas != first.quotas:
            text = f"the quotas of {other.address} differ from those of {first.address}"
            found.append(Finding("quotas", Level.WARNING, text, "`sprocket quota list` shows which: set them again"))
    text = f"{len(first.quotas or {})} quotas, the same at each master"
    if any(quota.storage_bytes for quota in (first.quotas or {}).values()):
        text += "; limits of storage bound what consumers can read, not the log on the disk"
    yield from found or [Finding("quotas", Level.OK, text)]


def _tokens(cluster: Cluster) -> Iterator[Finding]:
    """Judge what brokers tell of tokens.  Without tokens there is no finding."""
    for broker in cluster.brokers:
        if broker.tokens_not_renewed:
            users = broker.tokens_not_renewed
            text = f"{broker.address}: tokens end soon, and their clients have not renewed them: {users}"
            advice = "give these clients a new token, or let them fetch it: connect(credentials=an async function)"
            yield Finding("tokens", Level.WARNING, text, advice)
        if broker.token_key_troubles:
            advice = "put the key back, or let the issuer answer; tokens of a key that is gone are refused"
            yield Finding("tokens", Level.WARNING, f"{broker.address}: {broker.token_key_troubles}", advice)


def _wider(dimension: str, name: str, quotas: "Mapping[str, Quota]") -> "Iterator[Quota]":
    """Yield the hard quotas that all who use a topic, a group or a namespace share with others, or have each."""
    namespace = name if dimension == "namespace" else namespace_of(name)
    tenant, separator, _ = namespace.partition(TENANT_SEPARATOR)
    names: list[tuple[str, ...]] = [] if dimension == "namespace" else [("account:*",), ("address:*",)]
    if namespace and dimension != "namespace":
        names.append((f"namespace:{namespace}", "namespace:*"))
    if separator:
        names.append((f"tenant:{tenant}", "tenant:*"))
    for choice in names:
        found = next((quotas[name] for name in choice if name in quotas), None)
        if found is not None and not found.is_soft:
            yield found


def _contradictions(quotas: "Mapping[str, Quota]", topics: frozenset[str]) -> Iterator[Finding]:
    for name, quota in sorted(quotas.items()):
        dimension, _, pattern = name.partition(":")
        if dimension not in _JUDGED or pattern.endswith("*"):
            continue
        if dimension == "topic" and topics and pattern not in topics:
            yield Finding(
                "quotas", Level.WARNING, f"quota {name}: there is no such topic", f"`sprocket quota delete {name}`"
            )
        for wider in _wider(dimension, pattern, quotas):
            for kind in ("messages_in", "bytes_in", "messages_out", "bytes_out", "requests"):
                allowed = getattr(wider, kind)
                if allowed and getattr(quota, kind) > allowed:
                    text = f"quota {name}: {kind} is above the {allowed} that {wider.name} leaves"
                    advice = f"lower it, raise {wider.name}, or give the users of this {dimension} their own quota"
                    yield Finding("quotas", Level.WARNING, text, advice)


_CLUSTER: Final[tuple[Callable[[Cluster], Iterator[Finding]], ...]] = (
    _name_servers, _routes, _clocks, _versions, _cluster_settings, _quotas, _tokens,
)  # fmt: skip
