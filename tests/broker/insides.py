"""The one place where tests reach into a broker: parts that nobody else sees, and periodic work, done at once."""

from collections.abc import Iterable
from typing import TypeVar

from broker.core import BrokerCore
from broker.periodic import Periodic
from broker.server import Broker
from broker.service import Service
from sprocket.remoting.server import RemotingServer

T = TypeVar("T")


def core_of(broker: Broker) -> BrokerCore:
    """Return what the parts of a broker share."""
    return broker._core


def services_of(broker: Broker) -> list[Service]:
    """Return the services, in the order of their start."""
    return list(broker._services)


def service_of(broker: Broker, kind: type[T]) -> T:
    """Return the service of a class."""
    [found] = [service for service in services_of(broker) if isinstance(service, kind)]
    return found


def server_of(broker: Broker) -> RemotingServer:
    """Return the server of the port for clients."""
    return broker._server


def end_each_turn_early(broker: Broker) -> None:
    """Let a turn serve one run of requests of a connection, however fast the machine is."""
    turn = broker._server._turn
    assert turn is not None
    turn.slice_s = 0


def periodic_of(broker: Broker) -> list[Periodic]:
    """Return all periodic work."""
    return broker._periodic


async def work_now(name: str, periodic: Iterable[Periodic]) -> None:
    """Do the periodic work of a name now."""
    [found] = [one for one in periodic if one.name == name]
    doing = found.work()
    if doing is not None:
        await doing
