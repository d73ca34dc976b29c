"""The plan of a send to a topic, for tests without a broker."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

from broker.config.live_config import LiveConfig
from broker.namespace.namespaces import NO_NAMESPACES
from broker.quota.quota_table import QuotaTable
from broker.quota.quotas import Quotas
from broker.send.planner import SendKey, SendPlan, SendPlanner
from sprocket.common.files.config_file import ConfigFile
from sprocket.remoting.bodies.topic import TopicConfig
from tests.broker.rig import broker_config, store_config
from tests.clock import ManualClock


def send_plan(topic: TopicConfig, queue_id: int) -> SendPlan:
    """Return the plan for a queue that no message was sent to yet."""
    clock = ManualClock()
    config = LiveConfig(broker_config(), store_config(Path("/nowhere")))
    core: Any = SimpleNamespace(
        config=config, topics=SimpleNamespace(get=lambda name: topic, unsaved=set()), clock=clock,
        store=SimpleNamespace(plain_queue=lambda name, number: None), random_below=lambda below: 0,
        mappings=SimpleNamespace(by_name={}), namespaces=NO_NAMESPACES,
        quotas=Quotas(QuotaTable(ConfigFile(Path("nowhere")), clock, config.plan_version), clock),
    )  # fmt: skip
    plan = SendPlanner(core).plan(SendKey(topic.topic_name, queue_id))
    assert isinstance(plan, SendPlan), plan
    return plan
