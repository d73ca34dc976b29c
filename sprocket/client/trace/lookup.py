"""Reader of stored traces: those of one message, or all of a span of time."""

from collections.abc import AsyncIterator

from sprocket.client.admin.admin_client import AdminClient
from sprocket.client.admin.message_lookup import MessageLookup
from sprocket.client.message import ReceivedMessage
from sprocket.client.trace.encoding import TraceRecord, decode
from sprocket.remoting.codec.java_text import java_text
from sprocket.remoting.message.topic_names import TRACE_TOPIC

# A record, and the address of the client that sent it.
Found = tuple[TraceRecord, str]
_MAX_LONG = (1 << 63) - 1


class TraceLookup:
    """Reader of the trace topic of the cluster of `admin`.  Every method raises AdminError."""

    def __init__(self, admin: AdminClient, topic: str = TRACE_TOPIC) -> None:
        self._lookup = MessageLookup(admin)
        self._topic = topic

    async def of_message(self, message_id: str, *, max_messages: int = 64) -> list[Found]:
        """Return what clients recorded of a message, in the order of time; of at most `max_messages` trace messages."""
        messages = await self._lookup.by_key(self._topic, message_id, max_messages, 0, _MAX_LONG)
        found = [one for message in messages for one in _records(message) if one[0].message_id == message_id]
        return sorted(found, key=lambda one: one[0].time_ms)

    async def between(self, begin_ms: int | None, end_ms: int | None) -> AsyncIterator[Found]:
        """Yield all records that were stored in a span of time, queue by queue."""
        for queue, address in await self._lookup.queues(self._topic):
            start, stop = await self._lookup.bounds(queue, address, begin_ms, end_ms)
            async for page in self._lookup.pages(queue, address, start, stop, "*"):
                for message in page:
                    for one in _records(message):
                        yield one


def _records(message: ReceivedMessage) -> list[Found]:
    host = message.born_host[0]
    return [(record, host) for record in decode(java_text(message.body))]
