"""Which groups have consumed a message.

Source of rules: RocketMQ 5.3.3, `DefaultMQAdminExtImpl.messageTrackDetail`, `consumed`; of words: `TrackType`.
"""

from enum import Enum
from typing import NamedTuple

from sprocket.client.admin.admin_client import AdminClient, AdminError
from sprocket.client.message import ReceivedMessage
from sprocket.remoting.addresses import names_at
from sprocket.remoting.bodies.client import ConsumerConnection
from sprocket.remoting.codes import ResponseCode


class TrackType(Enum):
    """What a group has done with a message."""

    CONSUMED = "CONSUMED"
    CONSUMED_BUT_FILTERED = "CONSUMED_BUT_FILTERED"
    PULL = "PULL"
    NOT_CONSUME_YET = "NOT_CONSUME_YET"
    NOT_ONLINE = "NOT_ONLINE"
    CONSUME_BROADCASTING = "CONSUME_BROADCASTING"
    UNKNOWN = "UNKNOWN"


class MessageTrack(NamedTuple):
    """What one group has done with a message; `reason` says why that is not known, or why nobody consumes."""

    group: str
    type: TrackType
    reason: str | None = None


async def message_tracks(admin: AdminClient, message: ReceivedMessage) -> list[MessageTrack]:
    """Return a track for each group that has consumed the topic of `message`.

    Raises AdminError if the groups are not known; a failure that concerns one group is in its track.
    """
    groups = await admin.groups_of_topic(message.topic)
    brokers = await _brokers_of(admin, message) if groups else set()
    return [await _track(admin, message, group, brokers) for group in groups]


async def _brokers_of(admin: AdminClient, message: ReceivedMessage) -> set[str]:
    """Return the name of the broker group that has the message; empty if none is registered at its address."""
    if message.queue.broker_name:
        return {message.queue.broker_name}
    # A message that was found by its offset id names no broker, only the address that stored it.
    host, port = message.store_host
    groups = {name: data.broker_addrs.values() for name, data in (await admin.cluster_info()).broker_addr_table.items()}
    return await names_at(f"{host}:{port}", groups)


async def _track(admin: AdminClient, message: ReceivedMessage, group: str, brokers: set[str]) -> MessageTrack:
    try:
        members = await admin.consumer_connection(group)
        if members.consume_type != "CONSUME_PASSIVELY":
            return MessageTrack(group, TrackType.PULL)
        if not brokers:
            reason = "no registered broker has the address {}:{}, which stored the message".format(*message.store_host)
            return MessageTrack(group, TrackType.UNKNOWN, reason)
        is_consumed = await _is_consumed(admin, message, group, brokers)
    except AdminError as error:
        if error.code == ResponseCode.BROADCAST_CONSUMPTION:
            return MessageTrack(group, TrackType.CONSUME_BROADCASTING)
        kind = TrackType.NOT_ONLINE if error.code == ResponseCode.CONSUMER_NOT_ONLINE else TrackType.UNKNOWN
        return MessageTrack(group, kind, str(error) if error.code is None else f"CODE:{error.code} DESC:{error.remark}")
    if not is_consumed:
        return MessageTrack(group, TrackType.NOT_CONSUME_YET)
    passes = _passes(members, message)
    return MessageTrack(group, TrackType.CONSUMED if passes else TrackType.CONSUMED_BUT_FILTERED)


async def _is_consumed(admin: AdminClient, message: ReceivedMessage, group: str, brokers: set[str]) -> bool:
    """Return whether the group's offset on one of `brokers` is beyond the message."""
    place = message.topic, message.queue.queue_id
    return any(
        (queue.topic, queue.queue_id) == place
        and queue.broker_name in brokers
        and offsets.consumer_offset > message.queue_offset
        for queue, offsets in (await admin.consume_stats(group)).offset_table.items()
    )


def _passes(members: ConsumerConnection, message: ReceivedMessage) -> bool:
    """Return whether the group's subscription lets the message's tag pass."""
    subscription = members.subscription_table.get(message.topic)
    tags = None if subscription is None else subscription.tags_set
    return not tags or "*" in tags or message.tags in tags
