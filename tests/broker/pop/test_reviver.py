"""Retry topics of many groups, all new."""

from pathlib import Path

from remoting.bodies.group import SubscriptionGroupConfig
from tests.broker.pop.revive_rig import ReviveRig
from tests.broker.rig import TOPIC


def test_new_retry_topics_of_one_turn_are_written_at_once(tmp_path: Path) -> None:
    rig = ReviveRig(tmp_path)
    groups = [f"G{number}" for number in range(20)]
    rig.core.groups.update([SubscriptionGroupConfig(group) for group in groups])
    rig.send()
    for group in groups:
        rig.pop(0, c=group)
    changes: list[int] = []
    rig.core.topics.on_change = lambda topics: changes.append(len(topics))
    rig.elapse(20)
    assert [rig.core.store.max_offset(f"%RETRY%{group}_{TOPIC}", 0) for group in groups] == [1] * 20
    assert changes == [20]
    assert all(rig.core.offsets.query(group, f"%RETRY%{group}_{TOPIC}", 0) == 0 for group in groups)
    rig.close()
