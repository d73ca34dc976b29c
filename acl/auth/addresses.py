"""From which addresses a policy holds: single addresses and subnets.

Source: RocketMQ 5.3.3, `IPAddressUtils`.  Unlike there an address is compared as a number, however it is written, a
subnet means only addresses of its own version, and no name is asked of a name server.
"""

import ipaddress
from collections.abc import Iterable

from acl.remote_addresses import Parts, RemoteAddresses


def is_address_or_subnet(text: str) -> bool:
    """Whether this is one address, or a subnet as in ``192.168.0.0/24``."""
    try:
        if "/" in text:
            ipaddress.ip_network(text, strict=False)
            return text.rpartition("/")[2].isascii() and text.rpartition("/")[2].isdigit()
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def address_text(parts: Parts | None) -> str:
    """How an address is written in an answer: Java's way, with no ``::``."""
    if parts is None:
        return ""
    return ".".join(map(str, parts)) if len(parts) == 4 else ":".join(f"{part:x}" for part in parts)


class SourceAddresses:
    """The addresses of one policy entry.  What is no address matches nothing."""

    def __init__(self, entries: Iterable[str]) -> None:
        self._addresses = RemoteAddresses([entry for entry in entries if is_address_or_subnet(entry)])

    def match(self, source: Parts) -> bool:
        """Whether a request from there is meant."""
        return self._addresses.match(source)
