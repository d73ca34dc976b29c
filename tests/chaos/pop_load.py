"""A group that pops while its broker dies: every message is acknowledged in the end, whatever was lost on the way."""

import asyncio
import itertools
import time
from typing import Final

from sprocket.remoting.client import RemotingClient
from sprocket.remoting.codes import RequestCode, ResponseCode
from sprocket.remoting.command import ReceivedResponse
from sprocket.remoting.headers.pop import (
    AckMessageRequestHeader,
    ChangeInvisibleTimeRequestHeader,
    PopMessageRequestHeader,
    PopMessageResponseHeader,
)
from sprocket.remoting.message.pop_extra_info import PopHandle, parse_handle, parse_start_offsets, queue_key, real_topic
from sprocket.remoting.message.properties import POP_CK, parse
from store.record.record import Record, decode

TOPIC: Final = "Popped"
GROUP: Final = "popper"
QUEUES: Final = 2
_TIMEOUT_S: Final = 60.0
# One of them is written at once, the other kept in memory for a while.
_INVISIBLE_MS: Final = (2_000, 6_000)
PROPERTIES: Final = {
    "brokerName": "broker",
    "enablePopBufferMerge": "true",
    "popCkStayBufferTime": "1550",
    "popCkStayBufferTimeOut": "1000",
}


class PopLoad:
    """Pops, acknowledges some, keeps some for longer, and forgets some, over all lives of the broker."""

    def __init__(self) -> None:
        self.sent: set[str] = set()  # keys whose sends were acknowledged
        self.done: set[str] = set()  # keys whose acknowledgements were answered
        # Keys whose acknowledgement the broker may have taken: it died before the answer.
        self._unknown: set[str] = set()
        self._numbers = itertools.count()

    def sent_one(self, key: str) -> None:
        """A message is in the topic for sure."""
        self.sent.add(key)

    async def turn(self, client: RemotingClient, address: str) -> None:
        """One pop and what follows on it.  Raises ClientError if the broker dies."""
        number = next(self._numbers)
        for index, (key, queue_id, handle) in enumerate(await self._pop(client, address, _INVISIBLE_MS[number % 2])):
            match (number + index) % 4:
                case 0 | 1:
                    await self._ack(client, address, key, queue_id, handle)
                case 2:
                    await self._change(client, address, queue_id, handle)

    async def undone(self, address: str, limit_s: float) -> set[str]:
        """Pop and acknowledge whatever comes, and return what has not come within `limit_s` and should have."""
        client = RemotingClient()
        end = time.monotonic() + limit_s
        while self._missing() and time.monotonic() < end:
            for key, queue_id, handle in await self._pop(client, address, 60_000):
                await self._ack(client, address, key, queue_id, handle)
            await asyncio.sleep(0.02)
        await client.close()
        return self._missing()

    def _missing(self) -> set[str]:
        return self.sent - self.done - self._unknown

    async def _pop(self, client: RemotingClient, address: str, invisible_ms: int) -> list[tuple[str, int, PopHandle]]:
        header = PopMessageRequestHeader(
            consumer_group=GROUP, topic=TOPIC, queue_id=-1, max_msg_nums=8, invisible_time=invisible_ms, poll_time=0,
            born_time=0, init_mode=0,
        )  # fmt: skip
        response = await client.invoke(address, RequestCode.POP_MESSAGE, header, timeout_s=_TIMEOUT_S)
        return _handles(response) if response.code == ResponseCode.SUCCESS else []

    async def _ack(self, client: RemotingClient, address: str, key: str, queue_id: int, handle: PopHandle) -> None:
        header = AckMessageRequestHeader(
            consumer_group=GROUP, topic=real_topic(TOPIC, GROUP, handle.retry), queue_id=queue_id,
            extra_info=handle.encode(), offset=handle.queue_offset or 0,
        )  # fmt: skip
        self._unknown.add(key)
        response = await client.invoke(address, RequestCode.ACK_MESSAGE, header, timeout_s=_TIMEOUT_S)
        self._unknown.discard(key)
        if response.code == ResponseCode.SUCCESS:
            self.done.add(key)

    async def _change(self, client: RemotingClient, address: str, queue_id: int, handle: PopHandle) -> None:
        header = ChangeInvisibleTimeRequestHeader(
            consumer_group=GROUP, topic=real_topic(TOPIC, GROUP, handle.retry), queue_id=queue_id,
            extra_info=handle.encode(), offset=handle.queue_offset or 0, invisible_time=1_500,
        )  # fmt: skip
        code = RequestCode.CHANGE_MESSAGE_INVISIBLETIME
        await client.invoke(address, code, header, timeout_s=_TIMEOUT_S)


def _handles(response: ReceivedResponse) -> list[tuple[str, int, PopHandle]]:
    """Key, queue and handle of each message of a pop."""
    header = response.header(PopMessageResponseHeader)
    starts = parse_start_offsets(header.start_offset_info)
    found = []
    view, at = memoryview(response.body), 0
    while at < len(view):
        size = int.from_bytes(view[at : at + 4], "big")
        record = decode(view[at : at + size])
        assert isinstance(record, Record), record
        at += size
        text = parse(bytes(record.properties).decode()).get(POP_CK)
        if text is not None:
            handle = parse_handle(text)
        else:
            first = starts[queue_key("0", record.queue_id)]
            handle = PopHandle(
                first, header.pop_time, header.invisible_time, header.revive_qid, "0", "broker", record.queue_id,
                record.queue_offset,
            )  # fmt: skip
        found.append((bytes(record.body).decode(), record.queue_id, handle))
    return found
