"""Which groups have consumed a message.

Source of rules: RocketMQ 5.3.3, `DefaultMQAdminExtImpl.messageTrackDetail`, `consumed`; of words: `TrackType`.
"""

from enum import Enum
from typing import NamedTuple

from sprocket.client.admin.admin_client import AdminClient, AdminError
from sprocket.client.message import ReceivedMessage
from sprocket.remoting.bodies.client import ConsumerConnection
from sprocket.remoting.bodies.route import MASTER_ID
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
    return [await _track(admin, message, group) for group in await admin.groups_of_topic(message.topic)]


async def _track(admin: AdminClient, message: ReceivedMessage, group: str) -> MessageTrack:
    try:
        members = await admin.consumer_connection(group)
        if members.consume_type != "CONSUME_PASSIVELY":
            return MessageTrack(group, TrackType.PULL)
        is_consumed = await _is_consumed(admin, message, group)
    except AdminError as error:
        if error.code == ResponseCode.BROADCAST_CONSUMPTION:
            return MessageTrack(group, TrackType.CONSUME_BROADCASTING)
        kind = TrackType.NOT_ONLINE if error.code == ResponseCode.CONSUMER_NOT_ONLINE else TrackType.UNKNOWN
        return MessageTrack(group, kind, str(error) if error.code is None else f"CODE:{error.code} DESC:{error.remark}")
    if not is_consumed:
        return MessageTrack(group, TrackType.NOT_CONSUME_YET)
    passes = _passes(members, message)
    return MessageTrack(group, TrackType.CONSUMED if passes else TrackType.CONSUMED_BUT_FILTERED)


async def _is_consumed(admin: AdminClient, message: ReceivedMessage, group: str) -> bool:
    """Return whether the group's offset is beyond the message.

    The broker is known by the address that stored the message: one found by its offset id names no broker.
    """
    brokers = (await admin.cluster_info()).broker_addr_table
    address = "{}:{}".format(*message.store_host)
    for queue, offsets in (await admin.consume_stats(group)).offset_table.items():
        if (queue.topic, queue.queue_id) == (message.topic, message.queue.queue_id) and queue.broker_name in brokers:
            master = brokers[queue.broker_name].broker_addrs.get(MASTER_ID)
            if master == address and offsets.consumer_offset > message.queue_offset:
                return True
    return False


def _passes(members: ConsumerConnection, message: ReceivedMessage) -> bool:
    """Return whether the group's subscription lets the message's tag pass."""
    subscription = members.subscription_table.get(message.topic)
    tags = None if subscription is None else subscription.tags_set
    return not tags or "*" in tags or message.tags in tags
