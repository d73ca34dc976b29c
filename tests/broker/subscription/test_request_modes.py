"""Consume modes of groups: set ones, configured ones, and RocketMQ's file."""

from pathlib import Path

import pytest

from broker.config.live_config import LiveConfig
from broker.subscription.request_modes import RequestModes
from sprocket.common import failpoints
from sprocket.common.errors import DiskFull
from sprocket.common.files.config_file import ConfigFile
from sprocket.remoting.bodies.pop import SetMessageRequestModeRequestBody as Mode
from tests.broker.rig import broker_config, store_config

OF_ROCKETMQ = (Path(__file__).parents[1] / "data" / "messageRequestMode.json").read_bytes()


def modes(root: Path, **changes: object) -> RequestModes:
    config = LiveConfig(broker_config(**changes), store_config(root))
    modes = RequestModes(config, ConfigFile(root / "messageRequestMode.json"))
    modes.load()
    return modes


def test_what_nobody_set_is_taken_as_configured(tmp_path: Path) -> None:
    assert modes(tmp_path).find("Orders", "G") == Mode("Orders", "G", "PULL", 0)
    by_pop = modes(tmp_path, default_message_request_mode="POP", default_pop_share_queue_num=3)
    assert by_pop.find("Orders", "G") == Mode("Orders", "G", "POP", 3)
    assert by_pop.find("%RETRY%G", "G") == Mode("%RETRY%G", "G", "PULL", 0)


def test_what_is_set_holds_for_its_group_and_topic_alone_and_is_kept(tmp_path: Path) -> None:
    mode = Mode("Orders", "G", "POP", 2)
    modes(tmp_path).set(mode)
    again = modes(tmp_path)
    assert again.find("Orders", "G") == mode
    assert again.find("Orders", "H").mode == "PULL"
    assert again.find("Bills", "G").mode == "PULL"
    again.set(Mode("Orders", "G", "PULL"))
    assert modes(tmp_path).find("Orders", "G").mode == "PULL"


def test_the_file_is_that_of_rocketmq(tmp_path: Path) -> None:
    written = modes(tmp_path)
    written.set(Mode("Orders", "GroupA", "POP", 2))
    written.set(Mode("Orders", "GroupB"))
    written.set(Mode("Bills", "GroupA", "POP", -1))
    assert (tmp_path / "messageRequestMode.json").read_bytes() == OF_ROCKETMQ
    (tmp_path / "messageRequestMode.json").write_bytes(OF_ROCKETMQ)
    assert modes(tmp_path).find("Bills", "GroupA") == Mode("Bills", "GroupA", "POP", -1)


def test_what_cannot_be_written_is_not_set(tmp_path: Path) -> None:
    held = modes(tmp_path)
    failpoints.arm("atomic_file.before_sync=error:ENOSPC")
    try:
        with pytest.raises(DiskFull):
            held.set(Mode("Orders", "G", "POP"))
    finally:
        failpoints.arm(None)
    assert held.find("Orders", "G").mode == "PULL"
    assert modes(tmp_path).find("Orders", "G").mode == "PULL"
