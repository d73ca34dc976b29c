"""The plan of a send to a topic, for tests without a broker."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

from broker.config.live_config import LiveConfig
from broker.send.planner import SendKey, SendPlan, SendPlanner
from sprocket.remoting.bodies.topic import TopicConfig
from tests.broker.rig import broker_config, store_config
from tests.clock import ManualClock


def send_plan(topic: TopicConfig, queue_id: int) -> SendPlan:
    """Return the plan for a queue that no message was sent to yet."""
    config = LiveConfig(broker_config(), store_config(Path("/nowhere")))
    topics: Any = SimpleNamespace(get=lambda name: topic, unsaved=set())
    store: Any = SimpleNamespace(plain_queue=lambda name, number: None)
    plan = SendPlanner(config, topics, store, ManualClock(), lambda below: 0).plan(SendKey(topic.topic_name, queue_id))
    assert isinstance(plan, SendPlan), plan
    return plan
