"""Health page of a server process, and the conditions of each server.

It starts before the server that it watches and stops after it, so probes get a response during recovery and the stop.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from sprocket.metrics.health import Condition, HealthPage, HealthSettings

if TYPE_CHECKING:
    from broker.server import Broker
    from controller.server import Controller
    from namesrv.server import NameServer
    from proxy.proxy_server import Proxy


class HealthServer:
    """Health page as `settings` say; without a port it does nothing.  A `Server` of `server_process`."""

    def __init__(self, settings: HealthSettings, bind_address: str) -> None:
        self._conditions: dict[str, Condition] = {}
        self._page = None if settings.health_port < 0 else HealthPage(settings, bind_address, self._conditions)

    @property
    def port(self) -> int | None:
        """Port of the page, once started; None without a page."""
        return None if self._page is None else self._page.port

    def watch(self, conditions: Mapping[str, Condition]) -> None:
        """Let these conditions decide on readiness, too."""
        self._conditions.update(conditions)

    async def start(self) -> None:
        """Serve.  Raises ConfigError if the port is taken."""
        if self._page is not None:
            await self._page.start()

    async def stop(self) -> None:
        """Serve no longer."""
        if self._page is not None:
            self._page.close()


def namesrv_conditions(server: "NameServer") -> dict[str, Condition]:
    """Return the conditions of a name server: it listens."""
    return {"listening": lambda: None if server.is_running else "the server starts or stops"}


def controller_conditions(server: "Controller") -> dict[str, Condition]:
    """Return the conditions of a controller: it listens, and its group has a leader."""
    return {
        "listening": lambda: None if server.is_running else "the server starts or stops",
        "leader": lambda: None if server.consensus.leader is not None else "no leader is known",
    }


def proxy_conditions(server: "Proxy") -> dict[str, Condition]:
    """Return the conditions of a proxy: it has brokers and serves."""
    return {"serving": lambda: None if server.is_serving else "it waits for brokers, or it stops"}


def broker_conditions(server: "Broker") -> dict[str, Condition]:
    """Return the conditions of a broker: its store has recovered, the disk works, it is registered, and has a role."""

    def disk() -> str | None:
        failure = server.store.failure
        return None if failure is None else str(failure)

    def registered() -> str | None:
        if not server.config.broker.name_servers:
            return None
        return None if server.registration.is_registered else "no name server has accepted the broker"

    def role() -> str | None:
        following = server.following
        if following is None:
            return None if server.role.serves_group else "the master compares its log with that of a slave"
        if server.role.is_acting or following.is_master_online():
            return None
        return "the slave has no connection to its master's log"

    return {
        "recovered": lambda: None if server.is_running else "the store recovers, or the broker stops",
        "disk": disk,
        "registered": registered,
        "role": role,
    }
