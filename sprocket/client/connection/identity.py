"""Identity of a client: its address, its client id, and the seed of its message ids.  An edge file."""

import asyncio
import ipaddress
import os
import time
from collections.abc import Callable
from dataclasses import dataclass

from sprocket.client.connection.unique_id import unique_ids
from sprocket.common.clock import Clock

# TEST-NET-1: connecting a datagram socket sends nothing, it only asks the system which interface it would use.
_ELSEWHERE = ("192.0.2.1", 9)


@dataclass(frozen=True)
class Identity:
    """One client of one process."""

    client_id: str
    new_unique_id: Callable[[], str]


def random_number() -> int:
    """Return a number that differs among clients that start at the same time."""
    return int.from_bytes(os.urandom(4))


async def local_address() -> str:
    """Return the address by which others most likely reach this machine; 127.0.0.1 without a network."""
    try:
        transport, _ = await asyncio.get_running_loop().create_datagram_endpoint(
            asyncio.DatagramProtocol, remote_addr=_ELSEWHERE
        )
    except OSError:
        return "127.0.0.1"
    address: str = transport.get_extra_info("sockname")[0]
    transport.close()
    return address


async def new_identity(clock: Clock, instance_name: str | None = None) -> Identity:
    """Return an identity; without `instance_name` it is unique.

    Source: RocketMQ 5.3.3, `ClientConfig.buildMQClientId`, `changeInstanceNameToPID`.
    """
    address = await local_address()
    if instance_name is None:
        instance_name = f"{os.getpid()}#{time.perf_counter_ns()}{os.urandom(2).hex()}"
    packed = ipaddress.ip_address(address).packed
    return Identity(f"{address}@{instance_name}", unique_ids(packed, os.getpid(), os.urandom(4), clock))
