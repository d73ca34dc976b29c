"""A user's tests with topics of their own on one broker, in each mode of pytest-asyncio."""

import subprocess
import sys
from pathlib import Path

import pytest

TESTS = """
import pytest
from sprocket import ConsumeFrom, Consumer, Message, Producer

seen = set()


{mark}
@pytest.mark.parametrize("number", range(3))
async def test_topics_are_apart(sprocket_shared_broker, sprocket_topic, number):
    seen.add((sprocket_topic, sprocket_shared_broker.pid))
    namesrv = sprocket_shared_broker.namesrv
    async with Producer("g", namesrv) as producer:
        await producer.send(Message(sprocket_topic, str(number).encode()))
    async with Consumer(sprocket_topic, [sprocket_topic], namesrv, consume_from=ConsumeFrom.FIRST) as consumer:
        message = await anext(consumer)
        assert message.body == str(number).encode()
        await consumer.ack(message)


def test_one_broker_had_all_topics():
    assert len(seen) == 3 and len({{pid for _, pid in seen}}) == 1
"""


@pytest.mark.parametrize(("mode", "mark"), [("auto", ""), ("strict", "@pytest.mark.asyncio")])
def test_each_test_has_its_topic(tmp_path: Path, mode: str, mark: str) -> None:
    (tmp_path / "test_own.py").write_text(TESTS.format(mark=mark))
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-o", f"asyncio_mode={mode}"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=200, check=False)
    assert "4 passed" in done.stdout, done.stdout + done.stderr
