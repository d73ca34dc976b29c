"""Descriptors that connections must leave."""

import logging
import resource

import pytest

from sprocket.common.descriptors import DescriptorReserve


def test_connections_leave_a_share_for_files_and_it_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    reserve = DescriptorReserve(1600)
    with caplog.at_level(logging.WARNING):
        assert [reserve.has_room(number) for number in (10, 1099, 1100, 1500, 1099, 1076)] == [
            True, True, False, False, False, False
        ]  # fmt: skip
        assert reserve.has_room(1074)
        assert reserve.has_room(1099)
    assert reserve.refused == 4
    assert [record.getMessage().split()[1] for record in caplog.records] == ["state=refusing", "state=accepting"]


def test_the_connections_for_single_clients_have_the_share_of_the_queues() -> None:
    assert DescriptorReserve(1600).for_callers == 400
    assert DescriptorReserve(resource.RLIM_INFINITY).for_callers is None


def test_few_descriptors_are_kept_as_well() -> None:
    reserve = DescriptorReserve(100)
    assert reserve.has_room(51)
    assert not reserve.has_room(52)


def test_without_a_limit_there_is_room() -> None:
    assert DescriptorReserve(resource.RLIM_INFINITY).has_room(1 << 40)
