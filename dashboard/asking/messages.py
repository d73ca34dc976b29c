"""Requests for messages: by id, by key, or the newest of a topic."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from sprocket.client.admin.admin_client import AdminClient, AdminError
from sprocket.client.admin.at_once import AtOnce, Outcomes, answered
from sprocket.client.admin.group_admin import GroupAdmin
from sprocket.client.admin.message_lookup import MessageLookup
from sprocket.client.message import MessageQueue, ReceivedMessage
from sprocket.client.trace.lookup import Found, TraceLookup
from sprocket.remoting.bodies.route import addresses_of
from sprocket.remoting.bodies.stats import OffsetWrapper
from sprocket.remoting.codes import ResponseCode
from sprocket.remoting.message.topic_names import dlq_topic

_MAX_QUEUES: Final = 64
_MAX_GROUPS: Final = 20
MAX_FOUND: Final = 64


@dataclass(frozen=True)
class Newest:
    """The newest messages of a topic, and brokers that did not answer."""

    messages: list[ReceivedMessage]
    silent: list[tuple[str, str]]
    queues_left_out: int


async def newest(admin: AdminClient, at_once: AtOnce, topic: str, count: int) -> Newest:
    """Return the newest `count` messages, the newest first.  Raises AdminError without a route."""
    lookup = MessageLookup(admin)
    queues = await lookup.queues(topic)
    places = dict(queues[:_MAX_QUEUES])

    async def last_of(queue: MessageQueue) -> list[ReceivedMessage]:
        low, high = await lookup.bounds(queue, places[queue])
        found: list[ReceivedMessage] = []
        offset = max(low, high - count)
        while offset < high and len(found) < count:
            messages, after = await lookup.messages(queue, places[queue], offset)
            found += messages
            if after <= offset:
                break
            offset = after
        return found[-count:]

    outcomes = await at_once.each(places, last_of)
    found = [message for messages in answered(outcomes).values() for message in messages]
    failed = {queue.broker_name: str(one) for queue, one in outcomes.items() if isinstance(one, AdminError)}
    found.sort(key=lambda message: (message.store_timestamp_ms, message.queue_offset), reverse=True)
    return Newest(found[:count], sorted(failed.items()), max(0, len(queues) - _MAX_QUEUES))


async def by_key(admin: AdminClient, topic: str, key: str) -> list[ReceivedMessage]:
    """Return messages with a key, the newest first.  Raises AdminError."""
    found = await MessageLookup(admin).by_key(topic, key, MAX_FOUND)
    return sorted(found, key=lambda message: message.store_timestamp_ms, reverse=True)[:MAX_FOUND]


async def by_id(admin: AdminClient, topic: str, message_id: str) -> ReceivedMessage | None:
    """Return the message with an id of either kind.  Raises AdminError."""
    return await MessageLookup(admin).by_id(topic, message_id)


async def traces(admin: AdminClient, message_id: str) -> list[Found]:
    """Return what clients recorded of a message; nothing if the cluster has no trace topic.  Raises AdminError."""
    try:
        return await TraceLookup(admin).of_message(message_id)
    except AdminError as error:
        if error.code == ResponseCode.TOPIC_NOT_EXIST:
            return []
        raise


async def dead_letters(
    admin: AdminClient, at_once: AtOnce, message: ReceivedMessage, groups: Iterable[str]
) -> dict[str, ReceivedMessage]:
    """Return the dead letters that groups made of a message, by group."""
    lookup = MessageLookup(admin)

    async def letter_of(group: str) -> list[ReceivedMessage]:
        return await lookup.by_unique_key(dlq_topic(group), message.message_id)

    # Most groups have no topic of dead letters, which is an error like any other here.
    found = answered(await at_once.each(groups, letter_of))
    return {group: letters[-1] for group, letters in found.items() if letters}


async def progress(
    admin: AdminClient, at_once: AtOnce, message: ReceivedMessage
) -> Outcomes[str, dict[MessageQueue, OffsetWrapper]]:
    """Return the offsets of the groups that consume the topic in which the message lies, from its broker."""
    topic = message.queue.topic
    address = addresses_of((await admin.topic_route(topic)).broker_datas).get(message.queue.broker_name)
    if address is None:
        return {}
    groups = await admin.broker_groups_of_topic(address, topic)
    return await at_once.each(sorted(groups)[:_MAX_GROUPS], lambda group: GroupAdmin(admin).offsets(address, group))
