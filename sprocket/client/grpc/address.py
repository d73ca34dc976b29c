"""Addresses ``grpc://host:port`` of proxies."""

import re
from collections.abc import Sequence
from typing import Final

from sprocket.client.errors import IllegalArgument
from sprocket.remoting.client import split_address

SCHEME: Final = "grpc://"


def endpoints(namesrv: str | Sequence[str]) -> list[str] | None:
    """Return the addresses ``host:port`` of ``grpc://h1:8081;h2:8081``; None if they are those of name servers.

    The scheme may stand before each address or before the first alone.  Raises IllegalArgument for an address without a
    port, and for proxies and name servers in one text.
    """
    listed = [namesrv] if isinstance(namesrv, str) else [text for text in namesrv if isinstance(text, str)]
    parts = [part.strip() for text in listed for part in re.split("[;,]", text) if part.strip()]
    if not any(part.startswith(SCHEME) for part in parts):
        return None
    if not parts[0].startswith(SCHEME):
        raise IllegalArgument(f"{parts[0]} is a name server beside proxies; pass grpc:// addresses alone, or none")
    found = [part.removeprefix(SCHEME) for part in parts]
    for part in found:
        try:
            split_address(part)
        except ValueError as error:
            raise IllegalArgument(f"namesrv: {error}; pass 'grpc://host:8081' or 'grpc://a:8081;b:8081'") from None
    return found
