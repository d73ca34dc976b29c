"""Clusters as docs/ describe them: each profile with the keys of each kind of guard, written below one directory."""

import datetime
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from sprocket import ClientSettings
from sprocket.remoting.credentials import Credentials
from sprocket.remoting.tls.settings import TlsSettings
from sprocket_cli.processes.local_cluster import LocalCluster
from sprocket_cli.processes.profile import Plan, Profile, find_profile
from sprocket_cli.processes.tls_folder import TlsFolder
from tests.compat.ports import free_port, free_port_base

OPERATOR: Final = Credentials("operator", "a long secret of operator")
_SERVERS: Final = Credentials("servers", "a long secret of servers")
_SERVERS_KEY: Final = {
    "innerClientAuthenticationCredentials": f'{{"accessKey":"servers","secretKey":"{_SERVERS.secret_key}"}}'
}
_USERS: Final = {
    "authenticationEnabled": "true",
    "authorizationEnabled": "true",
    "initAuthenticationUser": f'{{"username":"operator","password":"{OPERATOR.secret_key}"}}',
    **_SERVERS_KEY,
}
# Files small enough for a test, however full and slow the machine is.
_SMALL: Final = {
    "mappedFileSizeCommitLog": str(1 << 20),
    "mappedFileSizeConsumeQueue": "20000",
    "maxHashSlotNum": "1000",
    "maxIndexNum": "4000",
    "diskSpaceWarningLevelRatio": "100",
    "cleanFileForciblyEnable": "false",
    "diskMaxUsedSpaceRatio": "100",
    "osPageCacheBusyTimeOutMills": "600000",
    "brokerFastFailureEnable": "false",
}
# docs/profiles.md: slave acting master.
_ACTING: Final = {
    "enableSlaveActingMaster": "true",
    "brokerHeartbeatInterval": "200",
    "brokerNotActiveTimeoutMillis": "2000",
    "syncBrokerMemberGroupPeriod": "200",
    "totalReplicas": "2",
}
_ACTING_NAME_SERVER: Final = {
    "supportActingMaster": "true",
    "notifyMinBrokerIdChanged": "true",
    "scanNotActiveBrokerInterval": "200",
}
# Names of profiles in conf/, and of the modes that have no folder there.
ACTING: Final = "slave-acting-master"
CONTROLLER: Final = "controller"
DLEDGER: Final = "dledger"
PROFILES: Final = ("2m-noslave", "2m-2s-async", "2m-2s-sync", ACTING, CONTROLLER, DLEDGER)


@dataclass(frozen=True)
class Guard:
    """A kind of protection, with the keys of brokers and of name servers that docs/security.md names for it."""

    name: str
    broker: Mapping[str, str] = field(default_factory=dict)
    name_server: Mapping[str, str] = field(default_factory=dict)
    controller: Mapping[str, str] = field(default_factory=dict)
    proxy: Mapping[str, str] = field(default_factory=dict)
    is_tls: bool = False

    @property
    def is_signed(self) -> bool:
        """Whether brokers serve signed requests alone."""
        return bool(self.broker)


OPEN: Final = Guard("open")
USERS_AND_TLS: Final = Guard("acl-2.0-tls", _USERS, _USERS, proxy=_USERS, is_tls=True)
GUARDS: Final = (
    OPEN,
    Guard("acl-1.0", {"aclEnable": "true"}, controller=_SERVERS_KEY, proxy=_SERVERS_KEY),
    Guard("acl-2.0", _USERS, _USERS, proxy=_USERS),
    Guard("tls", is_tls=True),
    USERS_AND_TLS,
)


@dataclass(frozen=True)
class Written:
    """The files of a cluster.  `home` is a RocketMQ home, with the accounts of ACL 1.0 and of tools."""

    guard: Guard
    cluster: LocalCluster
    home: Path

    @property
    def groups(self) -> list[str]:
        """Names of the broker groups."""
        return list(dict.fromkeys(one.broker_name for one in self.cluster.members if one.is_broker))

    @property
    def tls(self) -> TlsSettings | None:
        """TLS settings of clients."""
        return None if self.cluster.tls is None else self.cluster.tls.client_settings()

    @property
    def client(self) -> ClientSettings:
        """Settings of a client that may do everything."""
        account = OPERATOR if self.guard.is_signed else None
        return ClientSettings(namesrv=self.cluster.namesrv, credentials=account, tls=self.tls)

    @property
    def strangers(self) -> list[ClientSettings]:
        """Settings of clients that the guard must refuse."""
        unsigned = replace(self.client, credentials=None)
        forged = replace(self.client, credentials=Credentials(OPERATOR.access_key, "not its secret"))
        plain = replace(self.client, tls=None)
        return [*((unsigned, forged) if self.guard.is_signed else ()), *((plain,) if self.guard.is_tls else ())]


def write(directory: Path, profile: str, guard: Guard) -> Written:
    """Write the files of `profile` with the keys of `guard`, as `sprocket tls init` and `cluster up` do."""
    home = directory / "home"
    (home / "conf").mkdir(parents=True)
    accounts = "".join(
        f"  - accessKey: {one.access_key}\n    secretKey: {one.secret_key}\n    admin: true\n"
        for one in (OPERATOR, _SERVERS)
    )
    (home / "conf" / "plain_acl.yml").write_text(f"accounts:\n{accounts}")
    tools = f"accessKey: {_SERVERS.access_key}\nsecretKey: {_SERVERS.secret_key}\n"
    (home / "conf" / "tools.yml").write_text(tools)
    folder = None
    if guard.is_tls:
        folder = TlsFolder(directory / "keys")
        folder.create(["localhost", "127.0.0.1"], datetime.datetime.now(datetime.UTC), 1)
    plans = [_guarded(plan, profile, guard, home) for plan in _plans(profile)]
    brokers = sum(plan.is_broker for plan in plans)
    found = Profile(profile, tuple(plans))
    return Written(guard, LocalCluster.create(directory / "cluster", found, free_port_base(brokers), folder), home)


def _plans(profile: str) -> list[Plan]:
    if profile == DLEDGER:
        # docs/failover.md: DLedger mode.
        peers = ";".join(f"n{at}-127.0.0.1:{free_port()}" for at in range(3))
        common = (
            "brokerClusterName=DefaultCluster\nbrokerName=RaftNode00\nenableDLegerCommitLog=true\n"
            f"dLegerGroup=RaftNode00\ndLegerPeers={peers}\ndLegerRaftPortOffset=1\n"
        )
        names = [(f"broker-{at}", f"{common}dLegerSelfId=n{at}\n") for at in range(3)]
        members = [Plan(name, "ASYNC_MASTER", text, "DefaultCluster", "RaftNode00") for name, text in names]
        return [Plan("namesrv-a", "NAMESRV"), *members]
    return list(find_profile("2m-2s-sync" if profile == ACTING else profile).plans)


def _metrics() -> dict[str, str]:
    return {"metricsExporterType": "PROM", "metricsPromExporterPort": str(free_port())}


def _guarded(plan: Plan, profile: str, guard: Guard, home: Path) -> Plan:
    """Return the plan with what an operator adds to its file."""
    if plan.is_broker:
        keys = (
            _SMALL | _metrics() | (_ACTING if profile == ACTING else {}) | {"rocketmqHome": str(home), **guard.broker}
        )
    else:
        keys = (_ACTING_NAME_SERVER if profile == ACTING else {}) | dict(guard.name_server)
        if plan.has_controller:
            keys |= _metrics() | dict(guard.controller)
    return replace(plan, content=plan.content + "".join(f"{key}={value}\n" for key, value in keys.items()))
