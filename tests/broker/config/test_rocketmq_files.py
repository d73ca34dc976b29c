"""Files of config/: the bytes that RocketMQ 5.3.3 writes (``data/``, made with its own classes) and ours."""

from pathlib import Path
from typing import Any

import pytest

from broker.offset.consumer_offsets import WrittenOffsetTable
from broker.timer.schedule import DelayOffsetTable
from sprocket.common.files.config_file import ConfigFile
from sprocket.remoting.bodies.group import SubscriptionGroupTable
from sprocket.remoting.bodies.topic import TopicConfigTable
from sprocket.remoting.codec.fastjson import loads
from sprocket.remoting.codec.pretty_json import pretty

DATA = Path(__file__).parents[1] / "data"
FILES = {
    "topics.json": TopicConfigTable,
    "subscriptionGroup.json": SubscriptionGroupTable,
    "subscriptionGroupPolicies.json": SubscriptionGroupTable,
    "consumerOffset.json": WrittenOffsetTable,
    "lmqConsumerOffset.json": WrittenOffsetTable,
    "delayOffset.json": DelayOffsetTable,
}


def load(name: str) -> Any:
    return ConfigFile(DATA / name).load(lambda content: loads(content, FILES[name]))


@pytest.mark.parametrize("name", FILES)
def test_java_file_is_written_back_byte_for_byte(name: str) -> None:
    assert pretty(load(name)) == (DATA / name).read_bytes()


def test_values_of_a_java_file() -> None:
    offsets = load("consumerOffset.json")
    assert offsets.offset_table == {"Orders@CG": {0: 250, 1: 249}}
    assert offsets.data_version.counter == 7
