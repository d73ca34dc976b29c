"""What applications do with a cluster: they send to each group, and consume everything that was acknowledged."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Final

from sprocket import ClientError, ClientSettings, ConsumeFrom, Consumer, Message, MessageQueue, Producer, SprocketError
from sprocket.client.admin.admin_client import AdminClient
from sprocket.remoting.bodies.topic import TopicConfig

TOPIC: Final = "Orders"
WAIT_S: Final = 60.0
_PAUSE_S: Final = 0.05
_MASTER_ID: Final = 0


class Traffic:
    """One application, and what it has sent with success."""

    def __init__(self, client: ClientSettings) -> None:
        self._client = client
        self.acknowledged: set[bytes] = set()

    @asynccontextmanager
    async def admin(self) -> AsyncIterator[AdminClient]:
        """A client for operators' requests, with the same account."""
        client = self._client
        async with AdminClient(client.namesrv, credentials=client.credentials, tls=client.tls) as admin:
            yield admin

    async def send(self, word: str, groups: Sequence[str]) -> None:
        """Create the topic at the master of each group, and send to each until it has acknowledged a message."""
        async with asyncio.timeout(WAIT_S), self.admin() as admin, Producer("writers", client=self._client) as producer:
            for group in groups:
                body = f"{word} to {group}".encode()
                await _often(lambda group=group: _create_topic(admin, group))  # type: ignore[misc]
                await _often(lambda group=group, body=body: self._send(producer, body, group))  # type: ignore[misc]

    async def _send(self, producer: Producer, body: bytes, group: str) -> bool:
        result = await producer.send(Message(TOPIC, body), queue=MessageQueue(TOPIC, group, 0))
        if result.status.name == "SEND_OK":
            self.acknowledged.add(body)
        return body in self.acknowledged

    async def consume(self, group: str) -> None:
        """Consume, as a new group, until every acknowledged message has arrived."""
        missing = set(self.acknowledged)
        async with (
            asyncio.timeout(WAIT_S),
            Consumer(group, [TOPIC], client=self._client, consume_from=ConsumeFrom.FIRST) as consumer,
        ):
            while missing:
                message = await anext(consumer)
                missing.discard(bytes(message.body))
                await consumer.ack(message)


async def is_refused(client: ClientSettings) -> bool:
    """Return whether a send with these settings fails."""
    async with Producer("strangers", client=client) as producer:
        try:
            await producer.send(Message(TOPIC, b"of a stranger"))
        except SprocketError:
            return True
    return False


async def _create_topic(admin: AdminClient, group: str) -> bool:
    known = (await admin.cluster_info()).broker_addr_table.get(group)
    master = None if known is None else known.broker_addrs.get(_MASTER_ID)
    if master is None:
        return False
    await admin.create_topic(master, TopicConfig(TOPIC, read_queue_nums=1, write_queue_nums=1))
    return True


async def _often(attempt: Callable[[], Awaitable[bool]]) -> None:
    """Make an attempt again until it returns true without ClientError."""
    while True:
        with contextlib.suppress(ClientError):
            if await attempt():
                return
        await asyncio.sleep(_PAUSE_S)
