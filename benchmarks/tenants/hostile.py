"""The hostile tenant: does what harms others, until its standard input ends.  Prints what was served and refused.

    python -m benchmarks.tenants.hostile HOST:PORT KIND,KIND COLD_MESSAGES

It reads answers only to count them, and waits for nothing that they say.  See `KINDS`.
"""

import asyncio
import json
import random
import sys
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from itertools import count
from typing import Final

from benchmarks.tenants.frames import BODY, COLD, FLOOD, QUEUES, pull_header, send_header
from sprocket.remoting.bodies.client import ConsumerData, HeartbeatData, SubscriptionData
from sprocket.remoting.client import RemotingClient
from sprocket.remoting.codec.fastjson import dumps
from sprocket.remoting.codes import RequestCode, ResponseCode
from sprocket.remoting.frames import encode_request

_BATCH: Final = 64
_HELD: Final = 2000
# Between two messages that wake the held pulls.
_HELD_SEND_S: Final = 0.05
_GROUPS: Final = 50
_READ_BYTES: Final = 1 << 18


class Flood:
    """Connections that write requests as fast as the broker reads them."""

    def __init__(self, address: str, cold_messages: int) -> None:
        self._host, _, self._port = address.rpartition(":")
        self._cold = cold_messages
        self._numbers = count(1)
        self.answers: Counter[str] = Counter()

    async def _write(self, kind: str, batches: Callable[[], Iterator[bytes]]) -> None:
        """Write batches over one connection, and read what comes."""
        reader, writer = await asyncio.open_connection(self._host, int(self._port))
        reading = asyncio.create_task(self._read(kind, reader))
        try:
            for batch in batches():
                writer.write(batch)
                await writer.drain()
                self.answers[f"{kind} requests"] += _BATCH
                await asyncio.sleep(0)
            await asyncio.Event().wait()
        finally:
            reading.cancel()
            writer.close()

    async def _read(self, kind: str, reader: asyncio.StreamReader) -> None:
        while data := await reader.read(_READ_BYTES):
            self.answers[f"{kind} refused"] += data.count(b"is used up")
            self.answers[f"{kind} read KiB"] += len(data) >> 10

    def _frame(self, code: RequestCode, header: object, body: bytes = b"") -> bytes:
        return encode_request(code, next(self._numbers), header, len(body)) + body  # type: ignore[arg-type]

    # What is flooded

    def _sends(self) -> Iterator[bytes]:
        frames = [self._frame(RequestCode.SEND_MESSAGE_V2, send_header(FLOOD, one), BODY) for one in range(_BATCH)]
        batch = b"".join(frames)
        while True:
            yield batch

    def _cold_pulls(self) -> Iterator[bytes]:
        chance = random.Random(7)
        while True:
            offsets = [chance.randrange(max(1, self._cold // QUEUES)) for _ in range(_BATCH)]
            headers = [pull_header("evil%Cold", COLD, at % QUEUES, offset) for at, offset in enumerate(offsets)]
            yield b"".join(self._frame(RequestCode.PULL_MESSAGE, header) for header in headers)

    def _filtered_pulls(self) -> Iterator[bytes]:
        """Pulls that no message fits, by an expression that is new each time."""
        while True:
            headers = [
                pull_header(
                    "evil%Filter", COLD, at % QUEUES, 0, kind="SQL92",
                    expression=" OR ".join(f"a{part} = {next(self._numbers)}" for part in range(20)),
                )
                for at in range(_BATCH)
            ]  # fmt: skip
            yield b"".join(self._frame(RequestCode.PULL_MESSAGE, header) for header in headers)

    async def _hold(self) -> None:
        """Hold pulls at the end of a topic that the same tenant sends to: each message wakes all of its queue."""
        client = RemotingClient()
        address = f"{self._host}:{self._port}"

        async def hold(number: int) -> None:
            offset, queue_id = 0, number % QUEUES
            while True:
                header = pull_header(f"evil%Held{number}", FLOOD, queue_id, offset, wait_ms=20_000, at_most=1)
                answer = await client.invoke(address, RequestCode.PULL_MESSAGE, header, timeout_s=60)
                self.answers["held answered"] += 1
                # Never more than a message behind, so that the pull is held again.
                end = int(answer.ext_fields.get("maxOffset", 0))
                offset = end if answer.code == ResponseCode.SUCCESS else int(answer.ext_fields["nextBeginOffset"])

        async def send() -> None:
            for number in count():
                await client.invoke(
                    address, RequestCode.SEND_MESSAGE_V2, send_header(FLOOD, number), BODY, timeout_s=60
                )
                await asyncio.sleep(_HELD_SEND_S)

        await asyncio.gather(send(), *(hold(number) for number in range(_HELD)))

    def _subscriptions(self) -> Iterator[bytes]:
        """Heartbeats of many groups whose subscriptions change each time."""
        while True:
            groups = [
                ConsumerData(
                    f"evil%Group{number}", subscription_data_set=[
                        SubscriptionData(
                            COLD, f"a > {next(self._numbers)}", sub_version=next(self._numbers), expression_type="SQL92"
                        )
                    ],
                )
                for number in range(_GROUPS)
            ]  # fmt: skip
            body = dumps(HeartbeatData(f"evil@{next(self._numbers) % 100}", consumer_data_set=groups))
            yield self._frame(RequestCode.HEART_BEAT, None, body)

    async def _harmless(self) -> None:
        """Send and pull at the rates of the quota, evenly, and wait for each answer."""
        client = RemotingClient()
        address, period_s = f"{self._host}:{self._port}", 1 / HARMLESS_PER_SECOND
        loop = asyncio.get_running_loop()
        due, running = loop.time(), set[asyncio.Task[object]]()
        for number in count():
            due += period_s
            await asyncio.sleep(max(0.0, due - loop.time()))
            pull = pull_header(
                "evil%Cold", COLD, number % QUEUES, number * 2 % max(1, self._cold // QUEUES - 2), at_most=2
            )
            for code, header, body in (
                (RequestCode.SEND_MESSAGE_V2, send_header(FLOOD, number), BODY), (RequestCode.PULL_MESSAGE, pull, b""),
            ):  # fmt: skip
                task = asyncio.create_task(client.invoke(address, code, header, body, timeout_s=30))
                running.add(task)
                task.add_done_callback(running.discard)
            self.answers["harmless requests"] += 2

    async def run(self, kinds: list[str]) -> None:
        """Flood with several kinds at once."""
        if kinds == [HARMLESS]:
            await self._harmless()
        floods = (self._write(kind, batches) for kind in kinds for batches in self.of(kind))
        await asyncio.gather(*floods, *([self._hold()] if "held" in kinds else []))

    def of(self, kind: str) -> list[Callable[[], Iterator[bytes]]]:
        """Return what each connection of a kind writes."""
        return {
            "sends": [self._sends] * 4,
            "cold": [self._cold_pulls] * 2,
            "filters": [self._filtered_pulls] * 2,
            "held": [],
            "subscriptions": [self._subscriptions],
        }[kind]


HARMLESS: Final = "harmless"
HARMLESS_PER_SECOND: Final = 900
KINDS: Final = ("sends", "cold", "filters", "held", "subscriptions")


async def _until_told(work: Awaitable[None]) -> None:
    task = asyncio.ensure_future(work)
    await asyncio.wait((task, asyncio.create_task(asyncio.to_thread(sys.stdin.read))), return_when="FIRST_COMPLETED")
    if task.done():
        task.result()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


def main() -> None:
    """Run until the standard input ends, and print the counts."""
    address, kinds, cold = sys.argv[1], sys.argv[2].split(","), int(sys.argv[3])
    print(flush=True)  # it begins
    flood = Flood(address, cold)
    asyncio.run(_until_told(flood.run(kinds)))
    print(json.dumps(flood.answers))


if __name__ == "__main__":
    main()
