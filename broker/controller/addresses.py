"""Addresses of controllers: the key controllerAddr, and names that stand for several machines.

Source: RocketMQ 5.3.3, `ReplicasManager.updateControllerAddr`, `BrokerOuterAPI.dnsLookupAddressByDomain`.
"""

import asyncio
import logging
import re
from typing import Final

from sprocket.common.errors import ConfigError
from sprocket.remoting.client import split_address

logger = logging.getLogger(__name__)

_ADDRESS: Final = re.compile(r"(?:[^\s:;,\[\]]+|\[[0-9A-Fa-f:.]+\]):[0-9]{1,5}")


def parse_addresses(text: str) -> tuple[str, ...]:
    """Return the addresses in `text`, each once.  Raises ConfigError if there is none, or for one that is wrong."""
    found = tuple(dict.fromkeys(part.strip() for part in text.split(";") if part.strip()))
    if not found:
        raise ConfigError("controllerAddr: with enableControllerMode, name the controllers: host:port;host:port")
    for address in found:
        if not _ADDRESS.fullmatch(address) or not 0 < int(address.rpartition(":")[2]) < 65_536:
            raise ConfigError(f"controllerAddr: {address!r} is not host:port; several addresses are separated by ;")
    return found


async def looked_up(addresses: tuple[str, ...]) -> tuple[str, ...]:
    """Return every address of every host in `addresses`; a host that is not found now is left out."""
    found: dict[str, None] = {}
    for address in addresses:
        host, port = split_address(address)
        try:
            infos = await asyncio.get_running_loop().getaddrinfo(host, port)
        except OSError as error:
            logger.warning("event=controller_not_found host=%s reason=%r", host, error.strerror or str(error))
            continue
        for info in infos:
            ip = str(info[4][0])
            found[f"[{ip}]:{port}" if ":" in ip else f"{ip}:{port}"] = None
    return tuple(found)
