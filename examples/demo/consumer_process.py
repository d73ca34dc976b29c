"""One consumer of the demo's group, in a process of its own.

``python -I -m examples.demo.consumer_process GROUP NAMESRV FILE`` writes a line to FILE for each received message:
key, born, stored and received time (ms), broker name, queue id, queue offset.  On SIGTERM it writes the remaining lines
and commits its offsets.
"""

import asyncio
import signal
import sys
from pathlib import Path
from typing import Final, TextIO

import uvloop

from examples.demo.settings import POLL_NAME_SERVER_S, TOPIC
from sprocket.client.connection.client_instance import ClientSettings
from sprocket.client.consumer import Consumer
from sprocket.client.rebalance.start_offset import ConsumeFrom
from sprocket.common.clock import SystemClock

_FLUSH_S: Final = 0.25


async def consume(group: str, namesrv: str, file: TextIO) -> None:
    """Receive until cancelled."""
    clock = SystemClock()
    settings = ClientSettings(namesrv=namesrv, poll_name_server_interval_s=POLL_NAME_SERVER_S)
    flush_at = clock.monotonic() + _FLUSH_S
    async with Consumer(group, {TOPIC: "*"}, client=settings, consume_from=ConsumeFrom.FIRST) as consumer:
        print("ready", flush=True)
        async for message in consumer:
            queue = message.queue
            times = f"{message.born_timestamp_ms},{message.store_timestamp_ms},{clock.wall_ms()}"
            place = f"{queue.broker_name},{queue.queue_id},{message.queue_offset}"
            file.write(f"{message.properties['KEYS']},{times},{place}\n")
            await consumer.ack(message)
            if clock.monotonic() > flush_at:
                file.flush()
                flush_at = clock.monotonic() + _FLUSH_S


async def _flush_while_idle(file: TextIO) -> None:
    while True:
        await asyncio.sleep(_FLUSH_S)
        file.flush()


async def main(group: str, namesrv: str, path: Path) -> None:
    """Consume into `path` until SIGTERM."""
    with path.open("w") as file:
        work = asyncio.ensure_future(consume(group, namesrv, file))
        flushing = asyncio.ensure_future(_flush_while_idle(file))
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, work.cancel)
        try:
            await work
        except asyncio.CancelledError:
            pass
        finally:
            flushing.cancel()


if __name__ == "__main__":
    uvloop.run(main(sys.argv[1], sys.argv[2], Path(sys.argv[3])))
