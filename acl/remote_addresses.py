"""Addresses of a white list.

One entry is: empty (nobody), ``*`` (everybody), one IPv4 or IPv6 address, several separated by commas, several last
parts in braces (``10.1.1.{1,2}``), a range or wildcard of parts (``10.1.1-5.*``, ``2::ac5:78:1-200:*``), or a subnet
(``10.1.0.0/16``).
Source of all but the subnet: RocketMQ 5.3.2, `RemoteAddressStrategyFactory`, `AclUtils`.  Here any number of parts may
be ranges.  In RocketMQ only one may, and only wildcards may follow it.
"""

import ipaddress
from collections.abc import Callable, Sequence
from typing import Final

from sprocket.common.errors import ConfigError

# Parts of an address: 4 below 256 or 8 below 65536.
Parts = tuple[int, ...]
AddressRule = Callable[[Parts], bool]
_EVERYBODY: Final = frozenset({"*", "*.*.*.*", "*:*:*:*:*:*:*:*"})


def parts_of(address: str) -> Parts | None:
    """Return the parts of an address, of IPv4 also if it is written as IPv6; None if invalid."""
    try:
        parsed = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return None
    if isinstance(parsed, ipaddress.IPv6Address):
        mapped = parsed.ipv4_mapped
        if mapped is None:
            packed = parsed.packed
            return tuple(int.from_bytes(packed[at : at + 2], "big") for at in range(0, 16, 2))
        parsed = mapped
    return tuple(parsed.packed)


class RemoteAddresses:
    """White list of `entries`.  The constructor raises ConfigError for an invalid entry."""

    def __init__(self, entries: Sequence[str]) -> None:
        self._rules = [rule for entry in entries if (rule := _rule(entry.strip())) is not None]

    def match(self, parts: Parts | None) -> bool:
        """Return whether the address is on the list.  None, no address, is only on the list ``*``."""
        return bool(self._rules) and any(rule(parts or ()) for rule in self._rules)

    def __bool__(self) -> bool:
        return bool(self._rules)


def _rule(entry: str) -> AddressRule | None:
    if not entry:
        return None
    if entry in _EVERYBODY:
        return lambda parts: True
    if "/" in entry:
        return _subnet(entry)
    if entry.endswith("}"):
        head, brace, last = entry[:-1].partition("{")
        if not brace or head[-1:] not in (".", ":"):
            raise _wrong(entry, "braces stand for the last part, as in 10.1.1.{1,2}")
        return _one_of(entry, [head + part.strip() for part in last.split(",")])
    if "," in entry:
        return _one_of(entry, [part.strip() for part in entry.split(",")])
    if "*" in entry or "-" in entry:
        return _ranges(entry)
    return _one_of(entry, [entry])


def _one_of(entry: str, addresses: Sequence[str]) -> AddressRule:
    wanted = set()
    for address in addresses:
        parts = parts_of(address)
        if parts is None:
            raise _wrong(entry, f"{address!r} is no address")
        wanted.add(parts)
    return lambda parts: parts in wanted


def _subnet(entry: str) -> AddressRule:
    try:
        network = ipaddress.ip_network(entry, strict=False)
    except ValueError as error:
        raise _wrong(entry, str(error)) from None
    size_bits = 8 if network.version == 4 else 16
    count = network.max_prefixlen // size_bits
    mask, wanted = int(network.netmask), int(network.network_address)

    def is_in(parts: Parts) -> bool:
        number = 0
        for part in parts:
            number = number << size_bits | part
        return len(parts) == count and number & mask == wanted

    return is_in


def _ranges(entry: str) -> AddressRule:
    is_v6 = ":" in entry
    count, limit, base = (8, 0xFFFF, 16) if is_v6 else (4, 255, 10)
    texts = _expanded(entry) if is_v6 else entry.split(".")
    if len(texts) != count:
        raise _wrong(entry, f"it has {len(texts)} parts, not {count}")
    bounds = [_bounds(entry, text.strip(), limit, base) for text in texts]
    return lambda parts: (
        len(parts) == count and all(low <= part <= high for part, (low, high) in zip(parts, bounds, strict=True))
    )


def _expanded(entry: str) -> list[str]:
    """Return the parts of an IPv6 address; ``::`` may stand for several 0."""
    head, double, tail = entry.partition("::")
    if not double:
        return entry.split(":")
    left = head.split(":") if head else []
    right = tail.split(":") if tail else []
    return [*left, *["0"] * (8 - len(left) - len(right)), *right]


def _bounds(entry: str, text: str, limit: int, base: int) -> tuple[int, int]:
    if text == "*":
        return 0, limit
    low, dash, high = text.partition("-")
    try:
        bounds = int(low, base), int(high if dash else low, base)
    except ValueError:
        raise _wrong(entry, f"{text!r} is neither a number nor a range nor *") from None
    if not 0 <= bounds[0] <= bounds[1] <= limit:
        raise _wrong(entry, f"{text!r} is not within 0 to {limit}")
    return bounds


def _wrong(entry: str, why: str) -> ConfigError:
    return ConfigError(f"white list: {entry!r}: {why}")
