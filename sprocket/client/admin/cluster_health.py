"""Health of a cluster: whether sends are confirmed, which members should be there, and which are.  Pure.

The dashboard, `sprocket doctor` and `sprocket cluster status` all show what `judge` finds.  Members that should be
there are those that name servers list, those that the controllers know, and those that answered earlier.  Where
controllers answer, they decide about members that are not listed.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import Enum
from typing import Final

from sprocket.client.admin.admin_requests import AdminError
from sprocket.client.admin.at_once import Outcomes
from sprocket.remoting.bodies.controller import ReplicasInfo
from sprocket.remoting.bodies.route import MASTER_ID, ClusterInfo
from sprocket.remoting.bodies.stats import HARuntimeInfo
from sprocket.remoting.headers.controller import GetMetaDataResponseHeader

# Id of a member that should be there and never registered as far as is known.
UNKNOWN_ID: Final = -1
_DAY_MS: Final = 86_400_000
# Groups that the first line names one by one.
_MAX_NAMED: Final = 6
_START_REPLICAS: Final = "Start the missing replicas, and see that they catch up."
# By the figure sendStatus of a master: what is wrong, and what to do.
_WHY: Final = {
    "one_copy": ("sends are answered SLAVE_NOT_AVAILABLE: the messages are on too few disks", _START_REPLICAS),
    "replicas_not_enough": ("sends are refused: fewer replicas are in sync than minInSyncReplicas", _START_REPLICAS),
    "no_lease": (
        "sends are refused: the master holds no lease of the controllers",
        "Check that a majority of the controllers runs and that the master reaches them.",
    ),
    "recovering": ("sends are refused: the master waits for a slave's copy of its log", _START_REPLICAS),
    "slave": ("sends are refused: the broker in the routes is no master now", "Wait for the election to end."),
    "disk_full": ("sends are refused: the master's disk is full", "Free space, add a disk, or lower fileReservedTime."),
}
_BUSY: Final = "Look at the disk of the master, and at its log."


class Sends(Enum):
    """Whether a broker group confirms sends as it is configured."""

    CONFIRMED = "confirmed"
    NOT_CONFIRMED = "not confirmed"
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class ClusterLook:
    """What servers answered, or why they did not.  Brokers and controllers are keys by address.

    `controlled` are the names of broker groups under controllers; `replicas` is what those know, by broker name.
    """

    info: ClusterInfo
    runtime: Outcomes[str, dict[str, str]]
    replication: Outcomes[str, HARuntimeInfo]
    controllers: Outcomes[str, GetMetaDataResponseHeader] = field(default_factory=dict)
    controlled: frozenset[str] = frozenset()
    replicas: Mapping[str, ReplicasInfo] = field(default_factory=dict)


@dataclass(frozen=True)
class Seen:
    """Member that should be there; `last_ms` is when it last answered, None if unknown.

    `broker_id` is the one in the routes, or `UNKNOWN_ID`.
    """

    name: str
    broker_id: int
    address: str
    last_ms: int | None = None


@dataclass(frozen=True)
class Gone:
    """Member that should be there and is not.

    `is_listed` if name servers list it; `is_remembered` if no server names it any more.
    """

    address: str
    since_ms: int | None
    why: str
    is_listed: bool = False
    is_remembered: bool = False


@dataclass(frozen=True)
class Trouble:
    """Something that needs the operator: its subject in a word, what is wrong, and what to do."""

    subject: str
    what: str
    advice: str


@dataclass(frozen=True)
class GroupHealth:
    """Health of one broker group.  `replicas` is the number of members that should be there."""

    name: str
    sends: Sends
    replicas: int
    gone: tuple[Gone, ...]


@dataclass(frozen=True)
class ClusterHealth:
    """Health of a cluster; the first troubles are those of sends."""

    groups: tuple[GroupHealth, ...]
    troubles: tuple[Trouble, ...]

    @property
    def confirms_sends(self) -> bool:
        """Whether there are broker groups, and none is known to confirm nothing."""
        return bool(self.groups) and all(group.sends is not Sends.NOT_CONFIRMED for group in self.groups)

    @property
    def headline(self) -> str:
        """Whether sends are confirmed, in one sentence."""
        of = {sends: [group.name for group in self.groups if group.sends is sends] for sends in Sends}
        bad, unknown = of[Sends.NOT_CONFIRMED], of[Sends.UNKNOWN]
        if not self.groups:
            return "Sends are not confirmed: there is no broker."
        good = f"confirmed by {len(of[Sends.CONFIRMED])} of {len(self.groups)} broker groups"
        text = f"Sends are {good}"
        if bad:
            text = f"Sends are NOT confirmed by {_named(bad)}"
            text += f"; they are {good}" if of[Sends.CONFIRMED] else ""
        return f"{text}; {_named(unknown)} cannot tell." if unknown else f"{text}."


def judge(look: ClusterLook, seen: Iterable[Seen], now_ms: int) -> ClusterHealth:
    """Return the health of a cluster; `seen` are members that should be there besides those that `look` names."""
    seen = list(seen)
    names = {*look.info.broker_addr_table, *look.replicas, *(one.name for one in seen)}
    groups, sends, members = [], [], []
    for name in sorted(names):
        data = look.info.broker_addr_table.get(name)
        listed = {} if data is None else {address: broker_id for broker_id, address in data.broker_addrs.items()}
        should = _should_be(look, name, listed, [one for one in seen if one.name == name])
        gone = tuple(_gone(look, should))
        state, trouble = _sends(look, name, listed)
        groups.append(GroupHealth(name, state, len(should), gone))
        sends += trouble
        if gone:
            members.append(_trouble_of(name, gone, len(should), now_ms, is_known_to_controllers=name in look.replicas))
    return ClusterHealth(tuple(groups), (*sends, *members, *_controllers(look), *_behind(look)))


def _should_be(look: ClusterLook, name: str, listed: Mapping[str, int], seen: Sequence[Seen]) -> list[Seen]:
    last = {one.address: one for one in seen}
    known = look.replicas.get(name)
    if known is not None:
        ids = {one.broker_address: one.broker_id for one in (*known.in_sync_replicas, *known.not_in_sync_replicas)}
    elif name in look.controlled:
        # An election gives a member another id in the routes, so its address tells who it is.
        ids = {address: one.broker_id for address, one in last.items()}
    else:
        # A broker that moved has its id at another address now.
        ids = {address: one.broker_id for address, one in last.items() if one.broker_id not in listed.values()}
    found = ids | dict(listed)
    return [
        Seen(name, broker_id, address, last[address].last_ms if address in last else None)
        for address, broker_id in sorted(found.items())
    ]


def _gone(look: ClusterLook, should: Iterable[Seen]) -> Iterable[Gone]:
    for one in should:
        answer = look.runtime.get(one.address)
        if answer is None:
            yield Gone(one.address, one.last_ms, "not registered", is_remembered=one.name not in look.replicas)
        elif is_silent(answer):
            yield Gone(one.address, one.last_ms, f"no answer: {answer}", is_listed=True)


def is_silent(outcome: object) -> bool:
    """Return whether a server did not answer; a refusal is an answer."""
    return isinstance(outcome, AdminError) and outcome.code is None


def _sends(look: ClusterLook, name: str, listed: Mapping[str, int]) -> tuple[Sends, list[Trouble]]:
    master = next((address for address, broker_id in listed.items() if broker_id == MASTER_ID), None)
    if master is None:
        advice = "Start its master again, or let the controllers elect one."
        return Sends.NOT_CONFIRMED, [Trouble("sends", f"{name}: sends fail: the group has no master", advice)]
    figures = look.runtime[master]
    if isinstance(figures, AdminError):
        if not is_silent(figures):
            return Sends.UNKNOWN, []
        text = f"{name}: sends fail: its master {master} does not answer"
        return Sends.NOT_CONFIRMED, [
            Trouble("sends", text, "Start it again, or let the controllers elect another master.")
        ]
    status = figures.get("sendStatus")
    if status is None:
        return Sends.UNKNOWN, []  # RocketMQ's brokers do not tell
    if status == Sends.CONFIRMED.value:
        return Sends.CONFIRMED, []
    text, advice = _WHY.get(status, (f"sends are refused: {status}", _BUSY))
    if advice is _START_REPLICAS:
        text += f" ({figures.get('haInSyncReplicas')} in sync, {figures.get('haRequiredReplicas')} required)"
    return Sends.NOT_CONFIRMED, [Trouble("sends", f"{name}: {text}", advice)]


def _trouble_of(
    name: str, gone: Sequence[Gone], replicas: int, now_ms: int, *, is_known_to_controllers: bool
) -> Trouble:
    times = [one.since_ms for one in gone if one.since_ms is not None]
    since = f" since {_time(min(times), now_ms)}" if times else ""
    where = "; ".join(f"{one.address} ({one.why})" for one in gone)
    text = f"{name}: {len(gone)} of {replicas} {'replica' if replicas == 1 else 'replicas'} gone{since}: {where}"
    advice = "Start it." if len(gone) == 1 else "Start them."
    if any(one.is_listed for one in gone):
        advice += " If it runs, set brokerIP1 to an address that clients reach, and open its port."
    if is_known_to_controllers:
        advice += " If it was removed for good: mqadmin cleanBrokerMetadata."
    return Trouble("replicas", text, advice)


def _controllers(look: ClusterLook) -> Iterable[Trouble]:
    silent = {address: why for address, why in look.controllers.items() if is_silent(why)}
    told = [one for one in look.controllers.values() if not isinstance(one, AdminError)]
    if silent:
        where = "; ".join(f"{address} ({why})" for address, why in sorted(silent.items()))
        text = f"{len(silent)} of {len(look.controllers)} controllers gone: {where}"
        yield Trouble(
            "controllers", text, "Start them. Without a majority of the controllers no master can be elected."
        )
    if told and not any(one.controller_leader_address for one in told):
        text = "The controllers have no leader: they elect no master, and masters lose their leases"
        yield Trouble(
            "controllers", text, "Check that a majority of the controllers runs and that they reach each other."
        )
    if untold := sorted(look.controlled - look.replicas.keys()):
        text = f"{_named(untold)}: the controllers do not tell which replicas should be there"
        yield Trouble("controllers", text, "Check that they run, and that the user who asks may read from them.")


def _behind(look: ClusterLook) -> Iterable[Trouble]:
    groups = look.info.broker_addr_table
    names = {address: name for name, data in groups.items() for address in data.broker_addrs.values()}
    for address, status in look.replication.items():
        if isinstance(status, AdminError) or not status.master:
            continue
        for slave in status.ha_connection_info:
            if not slave.in_sync:
                text = f"{names[address]}: slave {slave.addr} is not in sync: it lacks {slave.diff:,} bytes of the log"
                yield Trouble("replication", text, "Check its disk, its network and its log file.")


def _time(time_ms: int, now_ms: int) -> str:
    """Return a time in UTC, without the date if it is of the last day."""
    form = "%H:%M UTC" if now_ms - time_ms < _DAY_MS else "%Y-%m-%d %H:%M UTC"
    return datetime.fromtimestamp(time_ms / 1000, UTC).strftime(form)


def _named(names: Sequence[str]) -> str:
    rest = len(names) - _MAX_NAMED
    return ", ".join(names[:_MAX_NAMED]) + (f" and {rest} more" if rest > 0 else "")
