"""Clients that are connected to a proxy and idle: settings on a telemetry stream, then a heartbeat every 10 s.

    python -m benchmarks.proxy.idle_clients PORT TOPIC COUNT [--on-one 1] [--unread 0]

Each is a consumer with a connection of its own, or shares one with others.  It prints `ready` when the proxy has
answered all settings, and ends with its standard input.  `--unread` more connections ask for messages of the topic,
and do not read the answers.
"""

import argparse
import asyncio
import resource
import sys
from typing import Final

from sprocket.grpc_wire import messaging_pb2 as wire
from tests.proxy.http2_client import Http2Client, connect
from tests.proxy.rig import consumer_settings, receive_request

_HEARTBEAT_S: Final = 10.0
# Clients that come at a time.
_TOGETHER: Final = 50
_UNREAD_CALLS: Final = 64


async def _serve(port: int, topic: str, count: int, on_one: int, unread: int) -> None:
    group = f"{topic}-idle"
    settings = wire.TelemetryCommand(settings=consumer_settings(topic, group)).SerializeToString()
    heartbeat = wire.HeartbeatRequest(group=wire.Resource(name=group), client_type=wire.PUSH_CONSUMER)
    clients: list[Http2Client] = []
    answered = asyncio.Semaphore(0)
    for begin in range(0, count, _TOGETHER):
        for number in range(begin, min(begin + _TOGETHER, count)):
            if number % on_one == 0:
                connection = await connect(port, lambda stream, message: answered.release())
            connection.call("Telemetry", settings, f"idle-{port}-{number}", is_open=True)
            clients.append(connection)
        for _ in range(begin, min(begin + _TOGETHER, count)):
            await answered.acquire()
    for number in range(unread):
        await _ask_unread(port, topic, f"unread-{number}")
    print("ready", flush=True)
    ended = asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    beat = heartbeat.SerializeToString()
    number = 0
    while not ended.done():
        if clients[number].is_closed:
            raise SystemExit(f"the proxy closed the connection of client {number}")
        clients[number].call("Heartbeat", beat, f"idle-{port}-{number}")
        number = (number + 1) % count
        await asyncio.sleep(_HEARTBEAT_S / count)


async def _ask_unread(port: int, topic: str, client_id: str) -> None:
    request = receive_request(topic, f"{topic}-unread", batch_size=32, wait_s=20).SerializeToString()
    client = await connect(port, reads=False)
    for _ in range(_UNREAD_CALLS):
        client.call("ReceiveMessage", request, client_id)


def main() -> None:
    """Serve until the standard input ends."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("port", type=int)
    parser.add_argument("topic")
    parser.add_argument("count", type=int)
    parser.add_argument("--on-one", type=int, default=1, help="clients that share a connection")
    parser.add_argument("--unread", type=int, default=0, help="connections that do not read")
    options = parser.parse_args()
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    asyncio.run(_serve(options.port, options.topic, options.count, options.on_one, options.unread))


if __name__ == "__main__":
    main()
