"""Source addresses of a policy: single addresses and subnets.

Source: RocketMQ 5.3.3, `IPAddressUtils`.  Unlike there an address is compared as a number, whatever its spelling, a
subnet contains only addresses of its own version, and no host name is resolved.
"""

import ipaddress
from collections.abc import Iterable

from acl.remote_addresses import Parts, RemoteAddresses


def is_address_or_subnet(text: str) -> bool:
    """Return whether `text` is one address, or a subnet such as ``192.168.0.0/24``."""
    try:
        if "/" in text:
            ipaddress.ip_network(text, strict=False)
            return text.rpartition("/")[2].isascii() and text.rpartition("/")[2].isdigit()
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def address_text(parts: Parts | None) -> str:
    """Return an address as responses show it: Java's way, without ``::``."""
    if parts is None:
        return ""
    return ".".join(map(str, parts)) if len(parts) == 4 else ":".join(f"{part:x}" for part in parts)


class SourceAddresses:
    """Addresses of one policy entry.  An invalid entry matches nothing."""

    def __init__(self, entries: Iterable[str]) -> None:
        self._addresses = RemoteAddresses([entry for entry in entries if is_address_or_subnet(entry)])

    def match(self, source: Parts) -> bool:
        """Return whether `source` is among them."""
        return self._addresses.match(source)
