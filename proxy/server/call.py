"""One call as the methods see it: who calls, from where, and how much time is left.

Source of the metadata's names: RocketMQ 5.3.3, `GrpcConstants`, `ContextInitPipeline`.
"""

from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any, Final, NamedTuple
from urllib.parse import unquote

from proxy.brokers.caller_connections import Caller
from proxy.listeners import Listener
from proxy.status import Refusal
from sprocket.grpc_wire import messaging_pb2 as wire
from sprocket.grpc_wire.metadata import CLIENT_ID, CLIENT_VERSION

_MAX_CLIENT_ID_CHARS: Final = 512
_PARSED_PEERS: Final = 4096


class Call(NamedTuple):
    """A call.  Nothing in `metadata` is proved.

    `remaining_ms` is the time to its deadline; None without one, and for a method that does not wait for messages.
    `account` has proved itself; None if accounts need not do so.

    Values of `metadata` are str; only names that end with ``-bin`` have bytes.
    """

    client_id: str
    metadata: Mapping[str, Any]
    peer: tuple[str, int]
    listener: Listener
    remaining_ms: int | None = None
    account: str | None = None

    def with_remaining(self, remaining_s: float | None) -> "Call":
        """Return the call with the time to its deadline, in s."""
        return self if remaining_s is None else self._replace(remaining_ms=max(0, int(remaining_s * 1000)))

    @property
    def client_version(self) -> str:
        return str(self.metadata.get(CLIENT_VERSION, ""))

    @property
    def caller(self) -> Caller:
        """Who pays for the call."""
        return Caller(self.account, self.peer[0])

    @property
    def peer_text(self) -> str:
        """Address of the client: ``host:port``."""
        host, port = self.peer
        return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def make_call(
    metadata: Mapping[str, Any] | Iterable[tuple[str, Any]],
    peer: tuple[str, int],
    listener: Listener,
) -> Call:
    """Return the call with this metadata.  Raises Refusal if it names no client."""
    table = metadata if isinstance(metadata, dict) else dict(metadata)
    client_id: str = table.get(CLIENT_ID, "")
    if not client_id.strip():
        raise Refusal(wire.CLIENT_ID_REQUIRED, "client id cannot be empty")
    if len(client_id) > _MAX_CLIENT_ID_CHARS:
        raise Refusal(
            wire.BAD_REQUEST, f"the client id has {len(client_id)} characters, at most {_MAX_CLIENT_ID_CHARS}"
        )
    return Call(client_id, table, peer, listener)


@lru_cache(_PARSED_PEERS)
def peer_of(text: str) -> tuple[str, int]:
    """Return address and port of gRPC's ``ipv4:10.0.0.1:4711`` or ``ipv6:[::1]:4711``; others have port 0."""
    kind, _, address = unquote(text).partition(":")
    host, _, port = address.rpartition(":")
    if kind not in ("ipv4", "ipv6") or not port.isdecimal():
        return text, 0
    return host.strip("[]"), int(port)
