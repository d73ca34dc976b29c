"""What clients do to a broker that is about to die, and what can be read afterwards."""

import asyncio
import contextlib
import json
import struct
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Final

from sprocket.common.errors import ClientError
from sprocket.remoting.bodies.group import SubscriptionGroupConfig
from sprocket.remoting.client import RemotingClient
from sprocket.remoting.codec.fastjson import dumps
from sprocket.remoting.codes import RequestCode, ResponseCode
from sprocket.remoting.command import ReceivedResponse
from sprocket.remoting.headers.admin import CreateTopicRequestHeader, DeleteTopicRequestHeader
from sprocket.remoting.headers.base import Header
from sprocket.remoting.headers.offset import (
    GetMaxOffsetRequestHeader,
    GetMaxOffsetResponseHeader,
    GetMinOffsetRequestHeader,
    GetMinOffsetResponseHeader,
    QueryConsumerOffsetRequestHeader,
    QueryConsumerOffsetResponseHeader,
    UpdateConsumerOffsetRequestHeader,
)
from sprocket.remoting.headers.pull import PullMessageRequestHeader, PullMessageResponseHeader
from sprocket.remoting.headers.send import SendMessageResponseHeader
from tests.chaos import pop_load
from tests.chaos.pop_load import PopLoad
from tests.chaos.queue_checker import QueueChecker
from tests.send_headers import send_header

TOPIC: Final = "Chaos"
LATER: Final = "Later"
GROUP: Final = "chaos"
QUEUES: Final = 4
OUTSTANDING: Final = 32
_OTHERS_S: Final = 0.02
# Beyond what a busy machine, or a check between two steps of the loop, may take.
_TIMEOUT_S: Final = 60.0
_RETRY_S: Final = 0.05
_CLEANED_TRIES: Final = 20
_KEY_BYTES: Final = 16
# Stored, but not as safe as was asked for: not SEND_OK.
_UNDECIDED: Final = frozenset(
    {ResponseCode.FLUSH_DISK_TIMEOUT, ResponseCode.FLUSH_SLAVE_TIMEOUT, ResponseCode.SLAVE_NOT_AVAILABLE}
)
# Small segments and queue files, and everything that is done now and then is done often: kills hit all of it.
PROPERTIES: Final = {
    "flushDiskType": "SYNC_FLUSH",
    "mappedFileSizeCommitLog": str(512 * 1024),
    "mappedFileSizeConsumeQueue": str(20 * 500),
    "defaultTopicQueueNums": str(QUEUES),
    "flushIntervalConsumeQueue": "30",
    "flushConsumeQueueThoroughInterval": "60",
    "flushConsumerOffsetInterval": "50",
    "flushDelayOffsetInterval": "50",
    "messageDelayLevel": "1s 2s",
    "timerPrecisionMs": "100",
    "timerFlushIntervalMs": "50",
    "mappedFileSizeTimerLog": "8192",
    # However full the disk of the machine is that runs the tests.
    "diskSpaceWarningLevelRatio": "100",
    "cleanFileForciblyEnable": "false",
    # Small index files, so that they roll too.
    "maxHashSlotNum": "2000",
    "maxIndexNum": "4000",
    **pop_load.PROPERTIES,
}
# Segments go as soon as they are no longer written.
CLEANING: Final = {
    **PROPERTIES,
    "fileReservedTime": "0",
    "deleteWhen": ";".join(f"{hour:02}" for hour in range(24)),
    "cleanResourceInterval": "50",
    "deleteCommitLogFilesInterval": "0",
    "deleteConsumeQueueFilesInterval": "0",
}


class Refused(Exception):
    """The broker answered a request with something else than success."""

    def __init__(self, code: int, remark: str) -> None:
        super().__init__(f"{code}: {remark}")
        self.code = code
        self.remark = remark

    @property
    def is_end(self) -> bool:
        """Whether the broker stops: it ends the work on what it has not answered yet."""
        return "the server ended the work" in self.remark


class Moved(Exception):
    """What was to be read is no more in the queue."""


class Load:
    """Sends, and beside them commits, delayed messages, and topics that come and go.

    It keeps what was acknowledged over all lives of the broker; keys are never used twice.
    """

    def __init__(self, *, body_bytes: int = 1500, outstanding: int = OUTSTANDING, is_cleaned: bool = False) -> None:
        self.checker = QueueChecker()
        # Keys of delayed messages that were acknowledged; each is delivered at least once.
        self.delayed: set[str] = set()
        self.pops = PopLoad()
        # Queue -> offsets that were acknowledged as committed, and sent: the file may hold any of the latter.
        self.committed: dict[int, int] = {}
        # Key -> (physical offset, monotonic seconds of the acknowledgement).
        self.placed: dict[str, tuple[int, float]] = {}
        # Response code -> how often it was the answer of a send that is neither acknowledged nor refused.
        self.undecided: Counter[int] = Counter()
        self.refused = 0
        self.acknowledged_after_refusal = 0
        self._body_bytes = body_bytes
        # Whether retention removes messages: then only what is left is held against what was acknowledged.
        self._is_cleaned = is_cleaned
        self._outstanding = outstanding
        self._numbers = iter(range(2**31))
        self._read: dict[int, list[tuple[int, str]]] = {queue: [] for queue in range(QUEUES)}

    @property
    def acknowledged(self) -> int:
        """How many sends were acknowledged so far."""
        return len(self.checker.acknowledged)

    @property
    def acknowledged_end(self) -> int:
        """Physical offset behind the start of the last acknowledged message; 0 without one."""
        return max((self.placed[key][0] + 1 for key in self.checker.acknowledged.values()), default=0)

    async def prepare(self, address: str) -> None:
        """Make the topics and the group."""
        client = RemotingClient()
        for topic, queues in ((TOPIC, QUEUES), (LATER, 1), (pop_load.TOPIC, pop_load.QUEUES)):
            await create_topic(client, address, topic, queues)
        body = dumps(SubscriptionGroupConfig(GROUP))
        code = RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP
        response = await client.invoke(address, code, None, body, timeout_s=_TIMEOUT_S)
        assert response.code == ResponseCode.SUCCESS, response.remark
        await client.close()

    async def until_dead(self, address: str, *, others: bool = True) -> None:
        """Load until the connection is lost.  Raises what else went wrong."""
        await self._run(address, others, lambda: False)

    async def sends(self, address: str, count: int) -> None:
        """About `count` more acknowledged sends, and nothing else.  Raises ClientError if the broker ends."""
        goal = self.acknowledged + count
        if not await self._run(address, False, lambda: self.acknowledged >= goal):
            raise ClientError("the broker ended")

    async def attempts(self, address: str, count: int) -> None:
        """About `count` more sends that the broker stores, as safe as was asked for or not."""
        goal = self.acknowledged + self.undecided.total() + count
        if not await self._run(address, False, lambda: self.acknowledged + self.undecided.total() >= goal):
            raise ClientError("the broker ended")

    async def _run(self, address: str, others: bool, enough: Callable[[], bool]) -> bool:
        """Whether `enough` ended it; False if the connection was lost."""
        client = RemotingClient()
        workers = [self._sender(client, address, enough) for _ in range(self._outstanding)]
        if others:
            workers += [self._committer(client, address), self._delayer(client, address), self._topics(client, address)]
            workers.append(self._popper(client, address))
        results = await asyncio.gather(*workers, return_exceptions=True)
        await client.close()
        for result in results:
            is_end = isinstance(result, ClientError) or (isinstance(result, Refused) and result.is_end)
            if isinstance(result, BaseException) and not is_end:
                raise result
        return None in results

    async def _sender(self, client: RemotingClient, address: str, enough: Callable[[], bool]) -> None:
        while not enough():
            await self.send(client, address)

    async def send(self, client: RemotingClient, address: str) -> None:
        """One message, acknowledged.  Raises Refused, ClientError."""
        number = next(self._numbers)
        key = f"m{number}"
        self.checker.unknown.add(key)
        body = key.encode().ljust(100 + number * 37 % self._body_bytes, b".")
        try:
            place = await send_message(client, address, TOPIC, number % QUEUES, f"KEYS\x01{key}\x02", body)
        except Refused as refusal:
            if refusal.code not in _UNDECIDED and not refusal.is_end:
                self.refused += 1
                raise
            # Neither acknowledged nor refused: the message may be there.
            self.undecided[refusal.code] += 1
            return
        self.acknowledged_after_refusal += self.refused > 0
        self.checker.on_acknowledged(key, place.queue_id, place.queue_offset)
        self.placed[key] = physical_offset_of(place), time.monotonic()

    async def _committer(self, client: RemotingClient, address: str) -> None:
        for queue in _again_and_again(QUEUES):
            offset = self.committed.get(queue, 0) + 1
            header = UpdateConsumerOffsetRequestHeader(
                consumer_group=GROUP, topic=TOPIC, queue_id=queue, commit_offset=offset
            )
            await _ask(client, address, RequestCode.UPDATE_CONSUMER_OFFSET, header)
            self.committed[queue] = offset
            await asyncio.sleep(_OTHERS_S)

    async def _delayer(self, client: RemotingClient, address: str) -> None:
        for delay in _again(("DELAY\x011\x02", "DELAY\x012\x02", "TIMER_DELAY_MS\x01700\x02")):
            key = f"d{next(self._numbers)}"
            await send_message(client, address, LATER, 0, f"KEYS\x01{key}\x02{delay}", key.encode())
            self.delayed.add(key)
            await asyncio.sleep(_OTHERS_S)

    async def _popper(self, client: RemotingClient, address: str) -> None:
        for queue in _again_and_again(pop_load.QUEUES):
            key = f"p{next(self._numbers)}"
            await send_message(client, address, pop_load.TOPIC, queue, f"KEYS\x01{key}\x02", key.encode())
            self.pops.sent_one(key)
            await self.pops.turn(client, address)
            await asyncio.sleep(_OTHERS_S)

    async def _topics(self, client: RemotingClient, address: str) -> None:
        for number in _again_and_again(3):
            topic = f"Fleeting{number}"
            await create_topic(client, address, topic, 2)
            for queue in range(2):
                await send_message(client, address, topic, queue, "", b"fleeting")
            await _ask(client, address, RequestCode.DELETE_TOPIC_IN_BROKER, DeleteTopicRequestHeader(topic=topic))
            await asyncio.sleep(_OTHERS_S)

    def forget_from(self, physical_offset: int) -> None:
        """The log was lost from here on, as it may be with ASYNC_FLUSH: acknowledgements beyond count no more."""
        acknowledged = self.checker.acknowledged
        for place, key in list(acknowledged.items()):
            if self.placed[key][0] >= physical_offset:
                del acknowledged[place]
        self.delayed.clear()

    # Reading back

    async def problems(self, address: str, *, whole: bool = False) -> list[str]:
        """What is wrong with what the broker shows; unless `whole`, only what is new since the last call is read."""
        if whole or self._is_cleaned:
            self._read = {queue: [] for queue in range(QUEUES)}
        client = RemotingClient()
        try:
            first = {}
            for queue, known in self._read.items():
                if self._is_cleaned:
                    first[queue], messages = await _read_cleaned(client, address, queue)
                    known += messages
                else:
                    known += await read_queue(client, address, TOPIC, queue, len(known))
            found = self.checker.check(self._read, first)
            if self._is_cleaned:
                found += self._removed_too_much(first, await _log_begin(client, address))
            return found + await self._commit_problems(client, address)
        finally:
            await client.close()

    def _removed_too_much(self, first: dict[int, int], log_begin: int) -> list[str]:
        """Messages that are in no queue any more and that the log should still have."""
        return [
            f"{key}, acknowledged at {place}, is not shown, but the log begins at {log_begin}"
            for place, key in self.checker.acknowledged.items()
            if place[1] < first.get(place[0], 0) and self.placed[key][0] >= log_begin
        ]

    async def _commit_problems(self, client: RemotingClient, address: str) -> list[str]:
        """A commit is saved now and then, so it may be lost, but never runs ahead of what was asked for."""
        found = []
        for queue, offset in self.committed.items():
            header = QueryConsumerOffsetRequestHeader(consumer_group=GROUP, topic=TOPIC, queue_id=queue)
            response = await client.invoke(address, RequestCode.QUERY_CONSUMER_OFFSET, header, timeout_s=_TIMEOUT_S)
            if response.code == ResponseCode.SUCCESS:
                shown = response.header(QueryConsumerOffsetResponseHeader).offset
                if not 0 <= shown <= offset + 1:
                    found.append(f"queue {queue}: committed offset {shown}, the last that was asked for is {offset}")
        return found

    async def await_delayed(self, address: str, limit_s: float = 60.0) -> list[str]:
        """Delayed messages that were acknowledged and are not delivered within `limit_s`."""
        client = RemotingClient()
        missing: set[str] = set()
        for _ in range(round(limit_s / 0.1)):
            delivered = {key for _, key in await read_queue(client, address, LATER, 0, 0)}
            missing = self.delayed - delivered
            if not missing:
                break
            await asyncio.sleep(0.1)
        await client.close()
        return sorted(missing)


def _again_and_again(count: int) -> Iterator[int]:
    while True:
        yield from range(count)


def _again(values: tuple[str, ...]) -> Iterator[str]:
    while True:
        yield from values


async def _ask(client: RemotingClient, address: str, code: RequestCode, header: Header) -> None:
    response = await client.invoke(address, code, header, timeout_s=_TIMEOUT_S)
    if response.code != ResponseCode.SUCCESS:
        raise Refused(response.code, response.remark or "")


async def until_dead(address: str, lanes: int, lane: Callable[[RemotingClient, str], Awaitable[None]]) -> None:
    """Run `lane` so many times side by side until the connection is lost.  Raises what else goes wrong."""
    client = RemotingClient()
    results = await asyncio.gather(*(lane(client, address) for _ in range(lanes)), return_exceptions=True)
    await client.close()
    for result in results:
        if not isinstance(result, ClientError):
            raise result or AssertionError("a lane ended by itself")


async def create_topic(client: RemotingClient, address: str, topic: str, queues: int) -> None:
    header = CreateTopicRequestHeader(
        topic=topic,
        default_topic="TBW102",
        read_queue_nums=queues,
        write_queue_nums=queues,
        perm=6,
        topic_filter_type="SINGLE_TAG",
    )
    await _ask(client, address, RequestCode.UPDATE_AND_CREATE_TOPIC, header)


async def send_message(
    client: RemotingClient, address: str, topic: str, queue: int, properties: str, body: bytes
) -> SendMessageResponseHeader:
    """Send one message as `sent`; return where it lies.  Raises as `sent`."""
    return (await sent(client, address, topic, queue, properties, body)).header(SendMessageResponseHeader)


def physical_offset_of(place: SendMessageResponseHeader) -> int:
    """Return where in the log a sent message lies: its id ends with the offset in 16 hex digits."""
    return int(place.msg_id[-16:], 16)


async def sent(
    client: RemotingClient, address: str, topic: str, queue: int, properties: str, body: bytes
) -> ReceivedResponse:
    """Send one message, as often as the broker asks for it; return the success.  Raises Refused, ClientError."""
    header = send_header(topic, producer_group=GROUP, queue_id=queue, properties=properties)
    while True:
        response = await client.invoke(address, RequestCode.SEND_MESSAGE_V2, header, body, timeout_s=_TIMEOUT_S)
        remark = response.remark or ""
        # A machine that is busy with other tests is slow: then do as the broker says.
        if "retry after" not in remark or "disk is full" in remark:
            break
        await asyncio.sleep(_RETRY_S)
    if response.code != ResponseCode.SUCCESS:
        raise Refused(response.code, remark)
    return response


async def _min_offset(client: RemotingClient, address: str, queue: int) -> int:
    asked = GetMinOffsetRequestHeader(topic=TOPIC, queue_id=queue)
    response = await client.invoke(address, RequestCode.GET_MIN_OFFSET, asked, timeout_s=_TIMEOUT_S)
    return response.header(GetMinOffsetResponseHeader).offset


async def _read_cleaned(client: RemotingClient, address: str, queue: int) -> tuple[int, list[tuple[int, str]]]:
    """Where a queue really begins, and its messages; again when retention removed some meanwhile."""
    for _ in range(_CLEANED_TRIES):
        first, messages = await _min_offset(client, address, queue), []
        with contextlib.suppress(Moved):
            messages = await read_queue(client, address, TOPIC, queue, first)
            # A queue is trimmed after the log, so it may say for a while that it begins before the log does.
            first = messages[0][0] if messages else first
            if all(offset == expected for expected, (offset, _) in enumerate(messages, first)):
                break
        await asyncio.sleep(_RETRY_S)
    return first, messages


async def _log_begin(client: RemotingClient, address: str) -> int:
    response = await client.invoke(address, RequestCode.GET_BROKER_RUNTIME_INFO, None, timeout_s=_TIMEOUT_S)
    return int(json.loads(response.body)["table"]["commitLogMinOffset"])


async def read_queue(
    client: RemotingClient, address: str, topic: str, queue: int, offset: int
) -> list[tuple[int, str]]:
    """(queue offset, key) of every message from `offset` to the queue's end."""
    return [found async for page in pages_of(client, address, topic, queue, offset) for found in records(page)]


async def pages_of(
    client: RemotingClient, address: str, topic: str, queue: int, offset: int
) -> AsyncIterator[bytes | memoryview]:
    """Yield the records of a queue from `offset` to its end, as the broker sends them."""
    asked = GetMaxOffsetRequestHeader(topic=topic, queue_id=queue)
    response = await client.invoke(address, RequestCode.GET_MAX_OFFSET, asked, timeout_s=_TIMEOUT_S)
    end = response.header(GetMaxOffsetResponseHeader).offset
    while offset < end:
        pull = PullMessageRequestHeader(
            consumer_group="chaos_check",
            topic=topic,
            queue_id=queue,
            queue_offset=offset,
            max_msg_nums=32,
            sys_flag=0b100,  # the subscription is in the request
            commit_offset=0,
            suspend_timeout_millis=0,
            subscription="*",
            sub_version=0,
        )
        response = await client.invoke(address, RequestCode.PULL_MESSAGE, pull, timeout_s=_TIMEOUT_S)
        if response.code in (ResponseCode.PULL_OFFSET_MOVED, ResponseCode.PULL_RETRY_IMMEDIATELY):
            raise Moved(f"{topic} queue {queue}: {offset} is gone")
        assert response.code == ResponseCode.SUCCESS, (topic, queue, offset, end, response)
        yield response.body
        offset = response.header(PullMessageResponseHeader).next_begin_offset


def records(body: bytes | memoryview) -> list[tuple[int, str]]:
    """(queue offset, key) of each record; the key is also the body's first word."""
    found = []
    position = 0
    while position < len(body):
        (size,) = struct.unpack_from(">i", body, position)
        (queue_offset,) = struct.unpack_from(">q", body, position + 20)
        (body_bytes,) = struct.unpack_from(">i", body, position + 84)
        first = bytes(body[position + 88 : position + 88 + min(body_bytes, _KEY_BYTES)])
        found.append((queue_offset, first.partition(b".")[0].decode()))
        position += size
    return found


async def beside(work: Awaitable[None], load: Awaitable[None]) -> None:
    """Run `work` while `load` runs, then wait for `load` to end because the broker has."""
    task = asyncio.ensure_future(load)
    await work
    await task
