"""Comparison of addresses: one place may be written as a host name, in IPv4, or in IPv6."""

import asyncio
import ipaddress
from collections.abc import Iterable, Mapping

from sprocket.remoting.client import split_address


def numeric_host(host: str) -> str | None:
    """Return an IP address in its shortest form, without a zone, IPv4 if it is mapped; None for a host name."""
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return None
    mapped = address.ipv4_mapped if address.version == 6 else None
    return str(mapped or address)


async def numeric_hosts(address: str) -> frozenset[str]:
    """Return the IP addresses of the host in ``host:port``; empty if it is not found, or if `address` is none."""
    try:
        host, port = split_address(address)
        numeric = numeric_host(host)
        if numeric is not None:
            return frozenset((numeric,))
        infos = await asyncio.get_running_loop().getaddrinfo(host, port)
    except (OSError, ValueError):  # UnicodeError of the resolver is a ValueError
        return frozenset()
    return frozenset(filter(None, (numeric_host(str(info[4][0])) for info in infos)))


async def names_at(address: str, groups: Mapping[str, Iterable[str]]) -> set[str]:
    """Return the names of the groups that have a member at `address`; `groups` maps each to its addresses."""
    same = {name for name, members in groups.items() if address in members}
    if same:
        return same
    wanted, port = await numeric_hosts(address), address.rpartition(":")[2]
    return {
        name
        for name, members in groups.items()
        for member in members
        if member.rpartition(":")[2] == port and not wanted.isdisjoint(await numeric_hosts(member))
    }
