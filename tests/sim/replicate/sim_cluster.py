"""One simulated cluster: queues that recognise numbers as brokers do, and both ends of a copier."""

import asyncio
from collections.abc import Callable, Sequence
from random import Random

from broker.idempotence.id_window import FirstSend, IdWindow
from replicate.ends import Bounds, Placed
from replicate.protocol.copies import Copy, SourceQueue
from replicate.protocol.marks import mark_in
from replicate.protocol.position import Found
from replicate.protocol.read_ahead import AheadBudget, Range, ReadAhead
from sprocket.client.message import MessageQueue, ReceivedMessage
from sprocket.common.errors import ClientError
from sprocket.remoting.message import properties as names

_MAX_ANSWERS = 64
TOPIC = "T"
BROKER = "b"


class SimCluster:
    """Queues of one topic, as lists of encoded properties."""

    def __init__(self, name: str, queues: int, random: Random) -> None:
        self.name = name
        self.queues: list[list[bytes]] = [[] for _ in range(queues)]
        self.random = random
        self.takes_copies = True
        self.crash()

    def crash(self, lost: int = 0) -> None:
        """Restart: connections end, the last `lost` messages of each queue are gone, and ids come from the log."""
        self.session = object()
        self._ids = IdWindow(600_000, 100_000)
        for number, log in enumerate(self.queues):
            if lost:
                del log[-lost:]
            for properties in log:
                self._know(number, len(log), properties)

    def _know(self, queue_id: int, offset: int, properties: bytes) -> None:
        id_ = (names.find_last(properties, names.encoded_name(names.IDEMPOTENCE_ID)) or b"").decode()
        if id_:
            self._ids.add(TOPIC, id_, FirstSend(TOPIC, queue_id, offset, 0, 0, "", 0, queue_id))

    def produce(self, queue_id: int, key: str) -> None:
        """Store a message of an application."""
        self.queues[queue_id].append(names.encode({names.UNIQ_KEY: key}).encode())

    def store(self, queue_id: int, copies: Sequence[Copy]) -> Placed:
        """Store those copies that are new, as a broker does."""
        log = self.queues[queue_id]
        first, duplicates = len(log), 0
        found = [self._ids.find(TOPIC, names.parse(copy.properties)[names.IDEMPOTENCE_ID], 0) for copy in copies]
        for copy, known in zip(copies, found, strict=True):
            if known is not None:
                duplicates += 1
                continue
            log.append(copy.properties.encode())
            self._know(queue_id, len(log), log[-1])
        return Placed(first, duplicates)

    def keys(self, queue_id: int) -> list[str]:
        """The ids of the messages of a queue."""
        return [names.own_unique_key(properties) for properties in self.queues[queue_id]]


async def turns(random: Random, most: int) -> None:
    """Let others go on for some turns."""
    for _ in range(random.randint(1, most)):
        await asyncio.sleep(0)


class SimSource:
    """A queue that is read by several pulls at a time, which are answered in any order, a few messages each."""

    def __init__(self, cluster: SimCluster, queue_id: int) -> None:
        self._cluster = cluster
        self._queue = MessageQueue(TOPIC, BROKER, queue_id)
        self._budget = AheadBudget(8000, 4000, lambda: 1)
        self._read = ReadAhead(0, self._budget)
        self._pulls: list[Range] = []

    async def bounds(self) -> Bounds:
        await turns(self._cluster.random, 3)
        return Bounds(0, len(self._cluster.queues[self._queue.queue_id]))

    def seek(self, offset: int) -> None:
        self.close()
        self._read = ReadAhead(offset, self._budget)

    async def messages(self) -> Sequence[ReceivedMessage]:
        if not self._read.ready:
            await turns(self._cluster.random, 5)
            for _ in range(self._cluster.random.randint(1, 8)):
                self._answer_one()
            for _ in range(_MAX_ANSWERS):
                if self._read.ready or all(pull.waits for pull in self._pulls):
                    break
                self._answer_one()
        return self._read.ready

    def _answer_one(self) -> None:
        log, random = self._cluster.queues[self._queue.queue_id], self._cluster.random
        while (pull := self._read.next_pull()) is not None:
            self._pulls.append(pull)
        if self._pulls:
            pull = self._pulls.pop(random.randrange(len(self._pulls)))
            end = min(pull.end, len(log), pull.offset + random.randint(1, 8))
            found = [received(self._queue, offset, log[offset]) for offset in range(pull.offset, end)]
            if found:
                self._read.take(pull, found, end, len(log))
            else:
                self._pulls.append(pull)  # it waits at the broker

    def drop(self, count: int) -> None:
        self._read.drop(count)

    @property
    def end(self) -> int:
        return self._read.end

    def close(self) -> None:
        self._read.close()
        self._read, self._pulls = ReadAhead(0, self._budget), []


class SimTarget:
    """A queue that is written: requests arrive late, also those of a copier that has ended, and answers get lost."""

    def __init__(
        self, cluster: SimCluster, queue_id: int, spawn: Callable[..., object], faults: dict[str, int]
    ) -> None:
        self._cluster = cluster
        self._queue_id = queue_id
        self._spawn = spawn
        self._faults = faults

    async def session(self) -> object:
        await turns(self._cluster.random, 3)
        return self._cluster.session

    async def bounds(self) -> Bounds:
        await turns(self._cluster.random, 3)
        return Bounds(0, len(self._cluster.queues[self._queue_id]))

    async def last_copy(self, queue: SourceQueue, begin: int, end: int) -> Found | None:
        await turns(self._cluster.random, 4)
        log = self._cluster.queues[self._queue_id]
        for offset in range(min(end, len(log)) - 1, begin - 1, -1):
            mark = mark_in(TOPIC, log[offset])
            if mark is not None and mark.source == queue.cluster and mark.queue_id == queue.queue_id:
                return Found(mark, offset)
        return None

    async def send(self, session: object, copies: Sequence[Copy]) -> Placed:
        answer: asyncio.Future[Placed] = asyncio.get_running_loop().create_future()
        self._spawn(self._deliver(session, copies, answer))
        for _ in range(200):
            if answer.done():
                return answer.result()
            await asyncio.sleep(0)
        raise ClientError("no answer")

    async def _deliver(self, session: object, copies: Sequence[Copy], answer: "asyncio.Future[Placed]") -> None:
        random = self._cluster.random
        await turns(random, 400 if random.random() < 0.05 else 10)
        if session is not self._cluster.session or not self._cluster.takes_copies:
            self._faults["request lost"] = self._faults.get("request lost", 0) + 1
            return
        placed = self._cluster.store(self._queue_id, copies)
        await turns(random, 10)
        if random.random() < 0.05:
            self._faults["answer lost"] = self._faults.get("answer lost", 0) + 1
        elif not answer.done():
            answer.set_result(placed)


def received(queue: MessageQueue, offset: int, properties: bytes) -> ReceivedMessage:
    return ReceivedMessage(
        topic=TOPIC, queue=queue, queue_offset=offset, physical_offset=0, body=b"x", raw_properties=properties, flag=0,
        sys_flag=0, born_timestamp_ms=0, born_host=bytes(8), store_timestamp_ms=0, store_host=bytes(8),
        reconsume_times=0, size_bytes=100,
    )  # fmt: skip
