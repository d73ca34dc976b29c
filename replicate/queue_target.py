"""One queue of a target: the search for the last copy in it, and sends."""

from collections.abc import Sequence
from typing import Final

from replicate.ends import Bounds, CopyRefused, Placed
from replicate.protocol.copies import Copy, SourceQueue, mark_of
from replicate.protocol.position import Found
from replicate.queue_source import GROUP, bounds_of
from sprocket.client.answers import header_of
from sprocket.client.connection.client_instance import ClientInstance
from sprocket.client.errors import BrokerNotFound, BrokerRefused, ClientError, refusal
from sprocket.client.message import MessageQueue
from sprocket.client.send.send_request import batched
from sprocket.remoting.channel import RemotingChannel
from sprocket.remoting.codes import RequestCode, ResponseCode
from sprocket.remoting.headers.pull import PullMessageRequestHeader, PullMessageResponseHeader
from sprocket.remoting.headers.send import (
    DUPLICATES_FIELD,
    SendMessageRequestHeaderV2,
    SendMessageResponseHeader,
)
from sprocket.remoting.message.topic_names import AUTO_CREATE_TOPIC

# Messages that one read of the search asks for.
_PAGE: Final = 32
_SUBSCRIPTION: Final = 0x4
_STORED: Final = frozenset(
    {
        ResponseCode.SUCCESS, ResponseCode.FLUSH_DISK_TIMEOUT, ResponseCode.FLUSH_SLAVE_TIMEOUT,
        ResponseCode.SLAVE_NOT_AVAILABLE,
    }
)  # fmt: skip


class QueueTarget:
    """Queue of the cluster of `instance`."""

    def __init__(self, instance: ClientInstance, queue: MessageQueue, send_timeout_s: float) -> None:
        self._instance = instance
        self._queue = queue
        self._send_timeout_s = send_timeout_s

    async def session(self) -> RemotingChannel:
        """Return the connection to the master.  Raises BrokerNotFound, ConnectFailed, TopicNotFound."""
        instance, name = self._instance, self._queue.broker_name
        await instance.route(self._queue.topic)
        address = instance.master_address(name)
        if address is None:
            await instance.refresh_route(self._queue.topic)
            address = instance.master_address(name)
            if address is None:
                raise BrokerNotFound(name)
        try:
            return await instance.remoting.channel(address)
        except ClientError:
            instance.watch_route(self._queue.topic)
            raise

    async def bounds(self) -> Bounds:
        """Return its extent.  Raises ClientError."""
        return await bounds_of(self._instance, self._queue)

    async def last_copy(self, queue: SourceQueue, begin: int, end: int) -> Found | None:
        """Return the last copy of a message of `queue` in [begin, end), read from the end.  Raises ClientError."""
        while end > begin:
            start = max(begin, end - _PAGE)
            last: Found | None = None
            offset = start
            while offset < end:
                marked, next_offset = await self._read(queue, offset, end)
                last = marked or last
                if next_offset <= offset:
                    break
                offset = next_offset
            if last is not None:
                return last
            end = start
        return None

    async def _read(self, queue: SourceQueue, offset: int, end: int) -> tuple[Found | None, int]:
        """Return the last copy of one read, and where the next one begins."""
        header = PullMessageRequestHeader(
            consumer_group=GROUP, topic=self._queue.topic, queue_id=self._queue.queue_id, queue_offset=offset,
            max_msg_nums=_PAGE, sys_flag=_SUBSCRIPTION, commit_offset=0, suspend_timeout_millis=0,
            subscription="*", sub_version=0, expression_type="TAG",
        )  # fmt: skip
        name = self._queue.broker_name
        response = await self._instance.invoke_master(name, RequestCode.PULL_MESSAGE, header)
        if response.code in (ResponseCode.PULL_NOT_FOUND, ResponseCode.PULL_OFFSET_MOVED):
            return None, end
        if response.code == ResponseCode.PULL_RETRY_IMMEDIATELY:
            next_offset = header_of(response, PullMessageResponseHeader).next_begin_offset
            return None, max(next_offset, offset + 1)
        answer = header_of(self._instance.expect_success(response, name), PullMessageResponseHeader)
        found: Found | None = None
        for message in self._instance.names.decoded(response.body, self._queue, answer.offset_delta or 0, offset):
            mark = mark_of(queue, message)
            if mark is not None and message.queue_offset < end:
                found = Found(mark, message.queue_offset)
        return found, answer.next_begin_offset

    async def send(self, session: object, copies: Sequence[Copy]) -> Placed:
        """Send one request.  Raises CopyRefused, ConnectionLost, RemotingTimeout, BrokerRefused."""
        assert isinstance(session, RemotingChannel)
        first = copies[0]
        is_batch = len(copies) > 1
        body = first.body
        if is_batch:
            body = b"".join(batched(copy.body, copy.properties, copy.flag) for copy in copies)
        header = SendMessageRequestHeaderV2(
            producer_group=GROUP, topic=self._queue.topic, default_topic=AUTO_CREATE_TOPIC,
            default_topic_queue_nums=4, queue_id=self._queue.queue_id, sys_flag=first.sys_flag,
            born_timestamp=first.born_ms, flag=0 if is_batch else first.flag,
            properties="" if is_batch else first.properties, reconsume_times=first.reconsume_times,
            unit_mode=False, batch=is_batch,
        )  # fmt: skip
        code = RequestCode.SEND_BATCH_MESSAGE if is_batch else RequestCode.SEND_MESSAGE_V2
        response = await session.request(code, header, body, timeout_s=self._send_timeout_s)
        if response.code not in _STORED:
            refused = refusal(response.code, response.remark, self._queue.broker_name, response.ext_fields)
            if response.code == ResponseCode.MESSAGE_ILLEGAL:
                raise CopyRefused(str(refused))
            raise refused
        answer = header_of(response, SendMessageResponseHeader)
        if answer.queue_id is not None and answer.queue_id != self._queue.queue_id:
            raise BrokerRefused(response.code, "it stored the messages in another queue", self._queue.broker_name)
        duplicates = response.ext_fields.get(DUPLICATES_FIELD, "0")
        return Placed(int(answer.queue_offset), int(duplicates) if duplicates.isdecimal() else 0)
