"""Spark reads the messages of a broker's lite topics: once, under their parent, each with its lite topic."""

from pathlib import Path

from tests.broker.insides import core_of
from tests.broker.lite.rig import PARENT, lite_broker, send_lite
from tests.broker.rig import create
from tests.spark.conftest import read_rows

_LITE_TOPIC = "__LITE_TOPIC"


async def test_messages_of_a_parent_have_their_lite_topics_and_are_not_doubled_by_light_queues(tmp_path: Path) -> None:
    sent = [(f"s{number % 3}", b"%d" % number) for number in range(12)]
    async with lite_broker(tmp_path) as (broker, client):
        root = core_of(broker).config.store.store_path_root_dir
        for lite, body in sent:
            await send_lite(client, lite, body)
        await client.send(b"plain", create("Plain").topic)
    for options in ({"topics": frozenset({PARENT})}, {"topic_pattern": "Sess.*"}):
        rows = read_rows(root, columns=["topic", "body", "properties"], **options)
        assert [(row["topic"], dict(row["properties"])[_LITE_TOPIC], bytes(row["body"])) for row in rows] == [
            (PARENT, lite, body) for lite, body in sent
        ]
    assert len(read_rows(root, columns=["body"])) == len(sent) + 1
