"""Named listeners: ports of the proxy, each with the address that routes give to clients which connect there; pure.

With them one proxy serves clients in its own network, behind NAT and outside of its container: each gets an address
that it can reach.
"""

import ipaddress
import json
from dataclasses import dataclass
from typing import Final

from sprocket.common.errors import ConfigError
from sprocket.grpc_wire import messaging_pb2 as wire

GRPC: Final = "grpc"
REMOTING: Final = "remoting"
_MAX_LISTENERS: Final = 32
_KEYS: Final = ("name", "port", "advertise", "protocol")


@dataclass(frozen=True)
class Listener:
    """One port.  Without `advertise` routes repeat the host that the client connected to."""

    name: str
    port: int
    advertise: tuple[str, int] | None = None
    protocol: str = GRPC


def parse_listeners(text: str) -> list[Listener]:
    """Return the listeners in a JSON list of objects with name, port, advertise and protocol.  Raises ConfigError."""
    if not text.strip():
        return []
    try:
        table = json.loads(text)
    except ValueError as error:
        raise ConfigError(f"listeners: not JSON: {error}") from None
    if not isinstance(table, list) or not all(isinstance(entry, dict) for entry in table):
        raise ConfigError("listeners: allowed is a list of objects with name, port and advertise")
    if len(table) > _MAX_LISTENERS:
        raise ConfigError(f"listeners: {len(table)} listeners; allowed are {_MAX_LISTENERS}")
    found = [_listener(entry) for entry in table]
    names = [listener.name for listener in found]
    if len(set(names)) < len(names):
        raise ConfigError(f"listeners: a name stands twice in {', '.join(names)}")
    return found


def _listener(entry: dict[str, object]) -> Listener:
    unknown = entry.keys() - set(_KEYS)
    if unknown:
        raise ConfigError(f"listeners: unknown key {min(unknown)!r}; allowed are {', '.join(_KEYS)}")
    name, port, advertise = entry.get("name"), entry.get("port"), entry.get("advertise")
    if not isinstance(name, str) or not name:
        raise ConfigError("listeners: each has a name")
    if type(port) is not int or not 0 <= port < 65536:
        raise ConfigError(f"listeners: {name}: port {port!r}: allowed is 0 to 65535")
    protocol = entry.get("protocol", GRPC)
    if protocol not in (GRPC, REMOTING):
        raise ConfigError(f"listeners: {name}: protocol {protocol!r}: allowed is {GRPC} or {REMOTING}")
    if advertise is None:
        return Listener(name, port, protocol=str(protocol))
    host, _, number = str(advertise).rpartition(":")
    host = host.strip("[]")
    if not host or not number.isdecimal() or not 0 < int(number) < 65536:
        raise ConfigError(f"listeners: {name}: advertise {advertise!r}: allowed is host:port")
    return Listener(name, port, (host, int(number)), str(protocol))


def endpoints_for(asked: wire.Endpoints, listener: Listener, *, use_asked_port: bool) -> wire.Endpoints:
    """Return the address of the proxy for a route, for a client which connected to `listener` as `asked`.

    Source without `advertise`: RocketMQ 5.3.3, `RouteActivity.convertToAddressList`.
    """
    if listener.advertise is not None:
        host, port = listener.advertise
        return wire.Endpoints(scheme=scheme_of(host), addresses=[wire.Address(host=host, port=port)])
    return wire.Endpoints(
        scheme=asked.scheme,
        addresses=[
            wire.Address(host=address.host, port=address.port if use_asked_port else listener.port)
            for address in asked.addresses
        ],
    )


def scheme_of(host: str) -> "wire.AddressScheme":
    """Return the kind of an address."""
    try:
        version = ipaddress.ip_address(host).version
    except ValueError:
        return wire.DOMAIN_NAME
    return wire.IPv4 if version == 4 else wire.IPv6
