"""Profile of a cluster: a folder with one configuration file for each server, such as those in conf/.

Apache RocketMQ's own folders work unchanged; they have no name servers, so two are added.  A proxy's file is
``proxy-*.json``.
Source of the folders' names: RocketMQ 5.3.3, distribution/conf.
"""

import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import sprocket
from sprocket.common.config.properties import parse
from sprocket.common.errors import ConfigError

_SUFFIXES: Final = frozenset({".properties", ".conf"})
_PROXY_FILES: Final = "proxy*.json"
_NO_BROKERS: Final = frozenset({"NAMESRV", "PROXY"})
_NAME_SERVERS: Final = ("namesrv-a", "namesrv-b")
_MASTER_ID: Final = "0"
# Role of brokers whose master controllers elect, and what stands for the id that controllers assign.
REPLICA: Final = "REPLICA"
_NO_ID: Final = "-"
# A checkout has conf/ beside the packages, an installation has it below the environment's share/.
_PLACES: Final = (Path(sprocket.__file__).parents[1] / "conf", Path(sys.prefix) / "share" / "sprocket" / "conf")


@dataclass(frozen=True)
class Plan:
    """One server of a profile: a broker, a name server with the role ``NAMESRV``, or a ``PROXY``.

    Brokers with enableControllerMode have the role REPLICA.  `has_controller`: a name server with
    enableControllerInNamesrv.
    """

    name: str
    role: str
    content: str = ""  # of its configuration file
    cluster: str = ""
    broker_name: str = ""
    broker_id: str = _MASTER_ID
    has_controller: bool = False

    @property
    def is_broker(self) -> bool:
        return self.role not in _NO_BROKERS


@dataclass(frozen=True)
class Profile:
    """Servers of a profile: name servers first, then masters, then slaves, then proxies."""

    name: str
    plans: tuple[Plan, ...]


def find_profile(name: str, *, with_trace: bool = False) -> Profile:
    """Return the profile `name` that comes with Sprocket, or the one in the folder `name`.  Raises ConfigError.

    Brokers for traces (``*-trace``) are left out unless `with_trace`.
    """
    for folder in (*(place / name for place in _PLACES), Path(name)):
        if folder.is_dir():
            return read_profile(folder, with_trace=with_trace)
    raise ConfigError(f"no profile {name}: known are {', '.join(profile_names())}, or give a folder")


def profile_names() -> list[str]:
    """Return the names of the profiles that come with Sprocket."""
    # Other folders there configure Prometheus, systemd and the like.
    return sorted({file.parent.name for place in _PLACES for file in place.glob("*/namesrv-*.properties")})


def read_profile(folder: Path, *, with_trace: bool = False) -> Profile:
    """Return the profile in `folder`.  Raises ConfigError."""
    files = sorted(path for path in folder.iterdir() if path.suffix in _SUFFIXES)
    plans = [plan for plan in map(_plan, files) if with_trace or not plan.name.endswith("-trace")]
    brokers = [plan for plan in plans if plan.is_broker]
    if not brokers:
        raise ConfigError(f"{folder}: no configuration of a broker: add a file with brokerName")
    _check(folder, brokers)
    name_servers = [plan for plan in plans if plan.role == "NAMESRV"]
    if not name_servers:
        name_servers = [Plan(name, "NAMESRV") for name in _NAME_SERVERS]
    proxies = [_proxy_plan(path) for path in sorted(folder.glob(_PROXY_FILES))]
    return Profile(folder.name, (*name_servers, *sorted(brokers, key=lambda plan: plan.role == "SLAVE"), *proxies))


def _proxy_plan(path: Path) -> Plan:
    content = path.read_bytes().decode()
    try:
        is_object = isinstance(json.loads(content), dict)
    except ValueError as error:
        raise ConfigError(f"{path}: {error}") from None
    if not is_object:
        raise ConfigError(f"{path}: allowed is one JSON object")
    return Plan(path.stem, "PROXY", content)


def _plan(path: Path) -> Plan:
    content = path.read_bytes().decode("iso-8859-1")
    values: Mapping[str, str] = {entry.key: entry.value for entry in parse(content, str(path))}
    if path.stem.startswith(("namesrv", "nameserver")):
        return Plan(path.stem, "NAMESRV", content, has_controller=_is_set(values, "enableControllerInNamesrv"))
    if "brokerName" not in values:
        raise ConfigError(f"{path}: neither a name server's file (namesrv-*) nor a broker's (brokerName)")
    role = values.get("brokerRole", "ASYNC_MASTER").strip()
    cluster = values.get("brokerClusterName", "DefaultCluster").strip()
    broker_id = values.get("brokerId", _MASTER_ID).strip()
    if _is_set(values, "enableControllerMode"):
        role, broker_id = REPLICA, _NO_ID
    return Plan(path.stem, role, content, cluster, values["brokerName"].strip(), broker_id)


def _is_set(values: Mapping[str, str], key: str) -> bool:
    return values.get(key, "").strip().lower() == "true"


def _check(folder: Path, brokers: list[Plan]) -> None:
    seen: dict[tuple[str, str, str], str] = {}
    for plan in brokers:
        place = (plan.cluster, plan.broker_name, plan.broker_id)
        if plan.role == REPLICA:
            continue
        if place in seen:
            same = f"brokerName = {plan.broker_name} and brokerId = {plan.broker_id}"
            raise ConfigError(f"{folder}: {seen[place]} and {plan.name} both have {same}")
        seen[place] = plan.name
