"""Retry topics of many groups, all new."""

import logging
from pathlib import Path

import pytest

from sprocket.remoting.bodies.group import SubscriptionGroupConfig
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
    rig.core.topics.on_change.append(lambda topics: changes.append(len(topics)))
    rig.elapse(20)
    assert [rig.core.store.max_offset(f"%RETRY%{group}_{TOPIC}", 0) for group in groups] == [1] * 20
    assert changes == [20]
    assert all(rig.core.offsets.query(group, f"%RETRY%{group}_{TOPIC}", 0) == 0 for group in groups)
    rig.close()


def test_messages_with_the_longest_names_are_redelivered_and_longer_names_block_none(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    rig = ReviveRig(tmp_path)
    fits, too_long = "g" * (255 - len(f"%RETRY%_{TOPIC}")), "h" * 248
    rig.core.groups.update([SubscriptionGroupConfig(group) for group in (fits, too_long)])
    rig.send()
    for group in (too_long, fits):
        rig.pop(0, c=group)
    rig.elapse(20)
    rig.elapse(60)
    assert rig.core.store.max_offset(f"%RETRY%{fits}_{TOPIC}", 0) == 1
    assert caplog.text.count("event=checkpoint_dropped reason='the name of its retry topic is too long'") == 1
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]
    rig.close()
