"""Messages by which proxies tell each other of their consumers; pure.

Source: RocketMQ 5.3.3, `HeartbeatSyncerData`, `RemoteChannelSerializer`, `RemoteChannel`, `ChannelProtocolType`.
"""

import json
from typing import Final

import msgspec

from proxy.clients.members import Member
from sprocket.common import limits
from sprocket.common.errors import ProtocolError
from sprocket.remoting.bodies.client import ConsumerData, SubscriptionData
from sprocket.remoting.codec.fastjson import dumps, loads

REGISTER: Final = "REGISTER"
UNREGISTER: Final = "UNREGISTER"
MAX_BYTES: Final = 1024 * 1024
_GRPC: Final = "GRPC_V2"
_REMOTING: Final = "REMOTING"
_MAX_CHARS: Final = 1024


class HeartbeatSyncerData(msgspec.Struct, rename="camel", kw_only=True):
    """Body of one message: a consumer comes or goes."""

    heartbeat_type: str
    client_id: str
    language: str | None = None
    version: int = 0
    last_update_timestamp: int = 0
    subscription_data_set: list[SubscriptionData] | None = None
    group: str
    consume_type: str | None = None
    message_model: str | None = None
    consume_from_where: str | None = None
    local_proxy_id: str
    channel_data: str


def encode(
    member: Member, group: str, data: ConsumerData | None, proxy_id: str, proxy_address: str, now_ms: int, extra: str
) -> bytes:
    """Return the message about a member of this proxy; without `data` it has left.

    `extra` is what the client told of itself: the settings of a gRPC client or the subscriptions of another, as JSON.
    """
    channel = {
        "remoteProxyIp": proxy_address,
        "remoteAddress": member.address,
        "localAddress": member.local_address,
        "type": _GRPC if member.channel is None else _REMOTING,
        "extendAttribute": extra,
    }
    return dumps(
        HeartbeatSyncerData(
            heartbeat_type=UNREGISTER if data is None else REGISTER,
            client_id=member.client_id,
            language=member.language,
            version=member.version,
            last_update_timestamp=now_ms,
            subscription_data_set=None if data is None else data.subscription_data_set,
            group=group,
            consume_type=None if data is None else data.consume_type,
            message_model=None if data is None else data.message_model,
            consume_from_where=None if data is None else data.consume_from_where,
            local_proxy_id=proxy_id,
            channel_data=json.dumps(channel, separators=(",", ":")),
        )
    )


def decode(body: bytes) -> HeartbeatSyncerData:
    """Return a message of any proxy.  Raises ProtocolError."""
    if len(body) > MAX_BYTES:
        raise ProtocolError("heartbeat", f"{len(body)} bytes, at most {MAX_BYTES}")
    found = loads(body, HeartbeatSyncerData)
    texts = (found.client_id, found.group, found.local_proxy_id, found.language or "")
    if not found.client_id or not found.group or max(map(len, texts)) > _MAX_CHARS:
        raise ProtocolError("heartbeat", "a name is missing or too long")
    if len(found.subscription_data_set or ()) > limits.MAX_HEARTBEAT_SUBSCRIPTIONS:
        raise ProtocolError("heartbeat", f"more than {limits.MAX_HEARTBEAT_SUBSCRIPTIONS} subscriptions")
    return found


def member_of(data: HeartbeatSyncerData, heard_at: float) -> Member:
    """Return the member of another proxy.  Raises ProtocolError."""
    try:
        channel = json.loads(data.channel_data)
        proxy, address, local, kind = (
            str(channel.get(name)) for name in ("remoteProxyIp", "remoteAddress", "localAddress", "type")
        )
    except (ValueError, AttributeError, RecursionError):
        raise ProtocolError("heartbeat", "channelData is no JSON object") from None
    if max(len(proxy), len(address), len(local), len(kind)) > _MAX_CHARS:
        raise ProtocolError("heartbeat", "an address is too long")
    return Member(
        # The id of such a channel at RocketMQ's proxies, and which proxy tells of it.
        key=f"{proxy}@{address}@{local}@{kind}@{data.local_proxy_id}@{data.client_id}",
        client_id=data.client_id,
        language=data.language or "OTHER",
        version=data.version,
        address=address,
        local_address=local,
        heard_at=heard_at,
        proxy=data.local_proxy_id,
    )


def consumer_of(data: HeartbeatSyncerData) -> ConsumerData:
    """Return what a message says of its group."""
    return ConsumerData(
        data.group, data.consume_type, data.message_model, data.consume_from_where, data.subscription_data_set or []
    )
