"""The good tenant: sends at a steady pace and consumes what it sends.  Prints the times of both as JSON, in ms.

    python -m benchmarks.tenants.good HOST:PORT SECONDS PER_SECOND

The time of a send is that until its response, counted from when it was due: a sender that is held up hides nothing.
That of a delivery is counted from the time that the message names as its birth.
"""

import asyncio
import json
import sys
import time

from benchmarks.tenants.frames import BODY, GOOD, QUEUES, pull_header, send_header
from sprocket.client.pull.record_decoder import decode_records
from sprocket.remoting.bodies.client import MessageQueue
from sprocket.remoting.client import RemotingClient
from sprocket.remoting.codes import RequestCode, ResponseCode
from sprocket.remoting.headers.offset import GetMaxOffsetRequestHeader

_HOLD_MS = 5000
_LIMIT_S = 30.0


class Good:
    """Sender and consumer at one broker, each with a connection of its own."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._sender, self._consumer = RemotingClient(), RemotingClient()
        self.sends_ms: list[float] = []
        self.deliveries_ms: list[float] = []
        self.failed = 0

    async def run(self, seconds: float, per_second: float) -> None:
        """Send and consume for some seconds."""
        offsets = [await self._end(queue_id) for queue_id in range(QUEUES)]
        consumers = [asyncio.create_task(self._consume(queue_id, offset)) for queue_id, offset in enumerate(offsets)]
        loop = asyncio.get_running_loop()
        began, count = loop.time(), int(seconds * per_second)
        sends = []
        for number in range(count):
            due = began + number / per_second
            await asyncio.sleep(max(0.0, due - loop.time()))
            sends.append(asyncio.create_task(self._send(number, due)))
        await asyncio.gather(*sends)
        await asyncio.sleep(0.2)  # for the last deliveries
        for consumer in consumers:
            consumer.cancel()
        await asyncio.gather(*consumers, return_exceptions=True)
        await self._sender.close()
        await self._consumer.close()

    async def _send(self, number: int, due: float) -> None:
        header = send_header(GOOD, number)
        answer = await self._sender.invoke(self._address, RequestCode.SEND_MESSAGE_V2, header, BODY, timeout_s=_LIMIT_S)
        self.sends_ms.append((asyncio.get_running_loop().time() - due) * 1e3)
        if answer.code != ResponseCode.SUCCESS:
            self.failed += 1
            print(answer.code, answer.remark, file=sys.stderr)

    async def _end(self, queue_id: int) -> int:
        header = GetMaxOffsetRequestHeader(topic=GOOD, queue_id=queue_id)
        answer = await self._consumer.invoke(self._address, RequestCode.GET_MAX_OFFSET, header, timeout_s=_LIMIT_S)
        return int(answer.ext_fields["offset"] or 0)

    async def _consume(self, queue_id: int, offset: int) -> None:
        queue = MessageQueue(GOOD, "", queue_id)
        while True:
            header = pull_header("good%Readers", GOOD, queue_id, offset, wait_ms=_HOLD_MS)
            answer = await self._consumer.invoke(self._address, RequestCode.PULL_MESSAGE, header, timeout_s=_LIMIT_S)
            if answer.code == ResponseCode.SUCCESS:
                now_ms = time.time_ns() / 1e6
                for message in decode_records(bytes(answer.body), queue):
                    self.deliveries_ms.append(now_ms - message.born_timestamp_ms)
                    offset = message.queue_offset + 1


def main() -> None:
    """Run, and print the times."""
    address, seconds, per_second = sys.argv[1], float(sys.argv[2]), float(sys.argv[3])
    good = Good(address)
    asyncio.run(good.run(seconds, per_second))
    print(json.dumps({"sends_ms": good.sends_ms, "deliveries_ms": good.deliveries_ms, "failed": good.failed}))


if __name__ == "__main__":
    main()
