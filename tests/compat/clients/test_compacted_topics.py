"""RocketMQ's own tools create a compacted topic, and RocketMQ's own consumer reads what is kept."""

import re
import time
from pathlib import Path

import pytest

import sprocket.sync
from sprocket.testing import Broker
from tests.compat import maven
from tests.compat.java_client import mqadmin

_PROPERTIES = {"mappedFileSizeCommitLog": "32768", "compactionScheduleInternal": "100"}


def test_a_stock_consumer_reads_the_last_message_of_each_key(tmp_path: Path) -> None:
    try:
        maven.apache_classpath()
    except maven.JavaMissingError as missing:
        pytest.skip(f"RocketMQ's mqadmin: {missing}")
    with Broker(tmp_path / "broker", properties=_PROPERTIES) as broker:
        where = ["-n", broker.namesrv, "-t", "Prices"]
        created = mqadmin(
            tmp_path, "updateTopic", *where, "-b", broker.address, "-w", "1", "-r", "1",
            "-a", "+cleanup.policy=COMPACTION",
        )  # fmt: skip
        assert "create topic to" in created.stdout, created
        with sprocket.sync.connect(broker.namesrv) as mq, mq.table("Prices", bytes) as table:
            for number in range(200):
                result = table.put(f"key-{number % 7}", b"price-%d-" % number + b"x" * 200)
            table.at_least(result)
            expected = {(key, value.rstrip(b"x").decode()) for key, value in table.items()}
        deadline = time.monotonic() + 60
        while not list((broker.store / "compacted").rglob("manifest")):
            assert time.monotonic() < deadline
            time.sleep(0.1)
        printed = mqadmin(
            tmp_path, "printMsgByQueue", *where, "-a", result.queue.broker_name, "-i", "0", "-p", "true", "-d", "true"
        ).stdout  # fmt: skip
    lines = [line for line in printed.splitlines() if line.startswith("MSGID:")]
    offsets = [int(found) for found in re.findall(r"queueOffset=(\d+)", "\n".join(lines))]
    assert offsets == sorted(set(offsets)) and len(offsets) < 200, printed
    kept: dict[str, str] = {}
    for line in lines:
        key, body = re.search(r"KEYS=(key-\d)", line), re.search(r"BODY: (price-\d+-)", line)
        assert key is not None and body is not None, line
        kept[key[1]] = body[1]
    assert set(kept.items()) == expected
