"""Addresses that mean all addresses of a machine."""

from typing import Final

# Java listens on all addresses of both families for any of these, and so do RocketMQ's servers.
EVERYWHERE: Final = frozenset({"", "0.0.0.0", "::"})
