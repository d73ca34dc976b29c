"""Addresses ``grpc://host:port`` of proxies."""

import re
from collections.abc import Sequence

from sprocket.client.arguments import PROXY_SCHEME
from sprocket.client.errors import IllegalArgument


def endpoints(namesrv: str | Sequence[str]) -> list[str] | None:
    """Return the addresses ``host:port`` of ``grpc://h1:8081;h2:8081``; None if they are those of name servers.

    `namesrv` is that of ClientSettings, which checks each address.  The scheme may stand before each address or before
    the first alone.  Raises IllegalArgument for proxies and name servers in one text.
    """
    listed = [namesrv] if isinstance(namesrv, str) else namesrv
    parts = [part.strip() for text in listed for part in re.split("[;,]", text) if part.strip()]
    if not any(part.startswith(PROXY_SCHEME) for part in parts):
        return None
    if not parts[0].startswith(PROXY_SCHEME):
        raise IllegalArgument(f"{parts[0]} is a name server beside proxies; pass grpc:// addresses alone, or none")
    return [part.removeprefix(PROXY_SCHEME) for part in parts]
