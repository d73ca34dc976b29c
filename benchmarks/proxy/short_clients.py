"""Memory of a proxy in local mode, and so of a broker, while connections come and go.

    python -m benchmarks.proxy.short_clients [--count 100000] [--server h2corn]

Every other client speaks gRPC: settings on a telemetry stream, one heartbeat.  The others send a heartbeat of
remoting.  Then each breaks its connection without a word.  Shown is the resident memory of the process after each
tenth of the clients: cycles that Python's collector did not find would make it grow without end.
"""

import argparse
import asyncio
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from benchmarks.system.process import memory
from proxy.config import GRPCIO, H2CORN
from sprocket.grpc_wire import messaging_pb2 as wire
from sprocket.remoting.bodies.client import HeartbeatData, ProducerData
from sprocket.remoting.client import RemotingClient
from sprocket.remoting.codec.fastjson import dumps
from sprocket.remoting.codes import RequestCode
from sprocket.testing import Broker
from tests.compat.proxies.proxy_rig import OwnBroker, ProxyProcess, prepare
from tests.proxy.http2_client import connect
from tests.proxy.rig import consumer_settings

_TOGETHER: Final = 32
_SHOWN: Final = 10
_RUN, _SCENARIO = "short", "clients"
_TOPIC: Final = f"{_RUN}-{_SCENARIO}"


async def _grpc(port: int, client_id: str) -> None:
    answered = asyncio.Semaphore(0)
    client = await connect(port, lambda stream, message: answered.release())
    settings = wire.TelemetryCommand(settings=consumer_settings(_TOPIC, f"{_TOPIC}-group"))
    beat = wire.HeartbeatRequest(group=wire.Resource(name=f"{_TOPIC}-group"), client_type=wire.PUSH_CONSUMER)
    client.call("Telemetry", settings.SerializeToString(), client_id, is_open=True)
    await answered.acquire()
    client.call("Heartbeat", beat.SerializeToString(), client_id)
    await answered.acquire()
    client.close()


async def _remoting(address: str, client_id: str) -> None:
    client = RemotingClient()
    beat = HeartbeatData(client_id, [ProducerData(_TOPIC)])
    assert (await client.invoke(address, RequestCode.HEART_BEAT, None, dumps(beat))).code == 0
    await client.close()


async def _run(proxy: ProxyProcess, broker: OwnBroker, count: int) -> None:
    print(f"{0:>8} clients: {memory(proxy.pid).resident_bytes / 2**20:.1f} MiB", flush=True)
    for share in range(_SHOWN):
        numbers = iter(range(share * count // _SHOWN, (share + 1) * count // _SHOWN))

        async def serve(numbers: Iterator[int] = numbers) -> None:
            for number in numbers:
                if number % 2:
                    await _grpc(proxy.port, f"short-{number}")
                else:
                    await _remoting(broker.address, f"short-{number}")

        await asyncio.gather(*(serve() for _ in range(_TOGETHER)))
        ended = (share + 1) * count // _SHOWN
        print(f"{ended:>8} clients: {memory(proxy.pid).resident_bytes / 2**20:.1f} MiB", flush=True)


def main() -> None:
    """Run, and print the memory."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=100_000)
    parser.add_argument("--server", choices=(GRPCIO, H2CORN), default=H2CORN)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name, Broker(Path(name, "broker")) as registered:
        broker = OwnBroker(registered.namesrv, Path(name, "own"))
        settings = {"grpcServer": options.server, "tlsServerMode": "disabled"}
        proxy = ProxyProcess(broker, Path(name, "proxy"), settings).start()
        try:
            prepare(broker, _RUN, [_SCENARIO])
            asyncio.run(_run(proxy, broker, options.count))
        finally:
            proxy.end(signal.SIGTERM)


if __name__ == "__main__":
    main()
