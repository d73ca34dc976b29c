"""The image of conf/container is built, and its servers serve a client outside of it.

It takes minutes: ``pytest -m slow tests/packaging/test_container.py``.
"""

import asyncio
import json
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest

import sprocket
from sprocket.client.rebalance.start_offset import ConsumeFrom
from tests.compat import ports

from .container import Image, missing

pytestmark = [pytest.mark.slow, pytest.mark.timeout(7200), pytest.mark.skipif(bool(missing()), reason=missing())]

_START_LIMIT_S = 300.0
# Both servers end in order when the input ends.  The status is 0 if that of both is.
_SERVERS = """
id -un; python -c 'from sprocket.engine.choice import ENGINE; print(ENGINE.name)'
mqnamesrv --set listenPort={namesrv} & namesrv=$!
mqbroker -n 127.0.0.1:{namesrv} --set listenPort={broker} --set brokerIP1=127.0.0.1 --set healthPort={health} \
    --set storePathRootDir=/var/lib/sprocket/store --set mappedFileSizeCommitLog=67108864 & broker=$!
cat
kill -TERM $broker && wait $broker && kill -TERM $namesrv && wait $namesrv
"""


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Image:
    return Image(tmp_path_factory.mktemp("storage"))


def test_servers_of_the_image_serve_a_client(image: Image, tmp_path: Path) -> None:
    namesrv, broker, health = ports.free_port(), ports.free_broker_port(), ports.free_port()
    output = tmp_path / "output.txt"
    script = _SERVERS.format(namesrv=namesrv, broker=broker, health=health)
    with image.running(["sh", "-c", script], output) as container:
        deadline = time.monotonic() + _START_LIMIT_S
        while not is_ready(health):
            assert container.poll() is None and time.monotonic() < deadline, output.read_text()[-4000:]
            time.sleep(0.5)
        asyncio.run(round_trip(f"127.0.0.1:{namesrv}"))
        assert container.stdin is not None
        container.stdin.close()
        assert container.wait(120) == 0, output.read_text()[-4000:]
    lines = output.read_text().splitlines()
    assert lines[:2] == ["sprocket", "native"]  # not root; the engine was compiled in the image


def is_ready(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/health/ready", timeout=10) as answer:
            return bool(json.loads(answer.read())["status"] == "UP")
    except (OSError, urllib.error.HTTPError):
        return False


async def round_trip(namesrv: str) -> None:
    async with asyncio.timeout(120), sprocket.connect(namesrv) as mq:
        await mq.producer().send(sprocket.Message("Orders", b"to the container"))
        async with mq.consumer("billing", "Orders", consume_from=ConsumeFrom.FIRST) as consumer:
            message = await anext(consumer)
            assert message.body == b"to the container"
            await consumer.ack(message)
