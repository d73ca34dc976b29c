"""Offsets of disconnected groups: kept, or deleted with enableCleanExpiredOffset."""

from pathlib import Path
from typing import cast

import pytest

from broker.core import BrokerCore
from broker.server import Broker
from broker.upkeep.idle_offsets import IdleOffsets
from sprocket.common.next_turn import at_once
from store.tier.reads.tiered_reads import TieredReads
from tests.broker.insides import core_of
from tests.broker.rig import GROUP, TOPIC, TestClient, running_broker


class Expired:
    """A store whose queues begin at 5."""

    def min_offset(self, topic: str, queue_id: int) -> int:
        return 5


def idle_offsets(broker: Broker) -> IdleOffsets:
    core = core_of(broker)
    return IdleOffsets(
        BrokerCore(
            **{name: getattr(core, name) for name in BrokerCore.__dataclass_fields__}
            | {"tier": cast(TieredReads, Expired())}
        )
    )


@pytest.mark.parametrize("enabled", [False, True])
async def test_what_is_forgotten(tmp_path: Path, enabled: bool) -> None:
    async with running_broker(tmp_path, enable_clean_expired_offset=enabled) as (broker, client):
        await _commit_everything(broker, client)
        await idle_offsets(broker).clean()
        left = at_once(broker.offsets.grouped())
    kept = {
        GROUP: {TOPIC},  # connected
        "AtTheOldest": {TOPIC},
        "PartlyRead": {TOPIC},
        "CID_RMQ_SYS_TRANS": {"RMQ_SYS_TRANS_HALF_TOPIC"},
    }
    if not enabled:
        kept |= {"Gone": {TOPIC, "Other"}}
        kept[GROUP] = {TOPIC, "Other"}
    assert left == kept


async def _commit_everything(broker: Broker, client: TestClient) -> None:
    await client.heartbeat("c1", TOPIC)
    for group, topic, offsets in (
        (GROUP, TOPIC, {0: 1}),
        (GROUP, "Other", {0: 1}),
        ("Gone", TOPIC, {0: 4, 1: 0}),
        ("Gone", "Other", {0: 4}),
        ("AtTheOldest", TOPIC, {0: 5}),
        ("PartlyRead", TOPIC, {0: 4, 1: 9}),
        ("CID_RMQ_SYS_TRANS", "RMQ_SYS_TRANS_HALF_TOPIC", {0: 1}),
    ):
        for queue_id, offset in offsets.items():
            broker.offsets.commit(group, topic, queue_id, offset)
