"""Facts of a cluster: what its name servers list, and what each broker there responds within a time limit."""

import asyncio
import re
from collections.abc import Awaitable, Mapping
from typing import Final, TypeVar

from sprocket.client.admin.admin_client import AdminClient
from sprocket.client.admin.at_once import AtOnce
from sprocket.client.admin.cluster_look import look_at
from sprocket.common.clock import Clock
from sprocket.common.errors import SprocketError
from sprocket.remoting.bodies.route import ClusterInfo
from sprocket.remoting.credentials import Credentials
from sprocket.remoting.tls.settings import TlsSettings
from sprocket_cli.doctor.facts import BrokerState, Cluster, NameServerState

T = TypeVar("T")
_LIMIT_S: Final = 5.0
# Brokers asked at a time.
_AT_ONCE: Final = 16
# ``runtime`` counts whole seconds.
_RUNTIME_ERROR_MS: Final = 1_000.0
_RUNTIME: Final = re.compile(r"(\d+) (days|hours|minutes|seconds)")
_UNIT_MS: Final = {"days": 86_400_000, "hours": 3_600_000, "minutes": 60_000, "seconds": 1000}


async def cluster(
    addresses: list[str], credentials: Credentials | None, tls: TlsSettings | None, clock: Clock
) -> Cluster:
    """Ask every name server, then every broker that one of them lists."""
    name_servers = []
    found = ClusterInfo()
    for address in addresses:
        try:
            async with AdminClient([address], credentials=credentials, tls=tls) as admin, asyncio.timeout(_LIMIT_S):
                info = await admin.cluster_info()
        except (SprocketError, TimeoutError) as error:
            name_servers.append(NameServerState(address, error=_reason(error)))
            continue
        for name, data in info.broker_addr_table.items():
            found.broker_addr_table.setdefault(name, data).broker_addrs.update(data.broker_addrs)
        name_servers.append(NameServerState(address, brokers=frozenset(_addresses(info))))
    at_once = AtOnce(_AT_ONCE)
    async with AdminClient(addresses, timeout_s=_LIMIT_S, credentials=credentials, tls=tls) as admin:
        look = await look_at(admin, at_once, found)
        places = _addresses(found)
        states = await at_once.each(sorted(places), lambda address: _state(admin, address, *places[address], clock))
        topics = await _answer(admin.topic_list()) or []  # without them, names in quotas are not judged
    brokers = [state for state in states.values() if isinstance(state, BrokerState)]
    return Cluster(name_servers, brokers, look, clock.wall_ms(), frozenset(topics))


async def _answer(asked: Awaitable[T]) -> T | None:
    """Return the answer of a server; None if it refuses, or does not answer in time."""
    try:
        async with asyncio.timeout(_LIMIT_S):
            return await asked
    except (SprocketError, TimeoutError):
        return None


def _addresses(info: ClusterInfo) -> dict[str, tuple[str, int]]:
    """Return name and id of each broker by address."""
    return {
        address: (name, broker_id)
        for name, data in info.broker_addr_table.items()
        for broker_id, address in data.broker_addrs.items()
    }


async def _state(admin: AdminClient, address: str, name: str, broker_id: int, clock: Clock) -> BrokerState:
    asked_ms = clock.wall_ms()
    info = await _answer(admin.broker_runtime_info(address))
    answered_ms = clock.wall_ms()
    if info is None:
        return BrokerState(name, broker_id, address)  # the look says why
    keys = await _answer(admin.broker_config(address)) or {}  # without the right to read it, settings are not judged
    quotas = await _answer(admin.quotas(address))  # RocketMQ has none
    there_ms = _clock_of(info)
    return BrokerState(
        name, broker_id, address, version=info.get("brokerVersionDesc", ""),
        sprocket_version=info.get("sprocketVersion", ""), keys=keys, quotas=quotas,
        tokens_not_renewed=info.get("tokensNotRenewed", ""), token_key_troubles=info.get("tokenKeyTroubles", ""),
        skew_ms=None if there_ms is None else there_ms - (asked_ms + answered_ms) / 2,
        skew_error_ms=_RUNTIME_ERROR_MS + (answered_ms - asked_ms) / 2,
    )  # fmt: skip


def _clock_of(info: Mapping[str, str]) -> float | None:
    """Return the broker's wall clock, ms: its start, and how long it runs.  None if it does not tell both."""
    parts = _RUNTIME.findall(info.get("runtime", ""))
    boot = info.get("bootTimestamp", "")
    if not parts or not boot.isdigit():
        return None
    return int(boot) + sum(int(count) * _UNIT_MS[unit] for count, unit in parts)


def _reason(error: Exception) -> str:
    return f"no response within {_LIMIT_S:.0f} s" if isinstance(error, TimeoutError) else str(error)
