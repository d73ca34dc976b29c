"""Check of the Host header, against DNS rebinding.  Pure.

A page of a stranger can make its own name resolve to this machine.  The browser then sends that name as Host.  An
address in Host cannot be rebound, so addresses are allowed.
"""

import ipaddress
from collections.abc import Collection
from urllib.parse import urlsplit


def host_name(header: str) -> str | None:
    """Return the name or address in a Host header, in lower case; None if it is malformed."""
    if not header or len(header) > 300 or any(character in header for character in "/@?#\\ \t"):
        return None
    try:
        parts = urlsplit(f"//{header}")
        _ = parts.port
    except ValueError:
        return None
    return parts.hostname.rstrip(".") if parts.hostname else None


def is_allowed(header: str, names: Collection[str]) -> bool:
    """Return whether a Host header is an address, localhost, or one of `names`."""
    name = host_name(header)
    if name is None:
        return False
    return name == "localhost" or name in {allowed.lower().rstrip(".") for allowed in names} or _is_address(name)


def is_same_origin(origin: str, host: str) -> bool:
    """Return whether an Origin header names the same host and port as the Host header."""
    try:
        parts = urlsplit(origin)
    except ValueError:
        return False
    return parts.scheme in ("http", "https") and parts.netloc.lower() == host.lower()


def is_loopback(host: str) -> bool:
    """Return whether only this machine can reach a server that listens on `host`."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name.partition("%")[0])
    except ValueError:
        return False
    return True
