"""The collector is paused for the block alone, and left as it was found."""

import gc
from collections.abc import Iterator

import pytest

from sprocket.common.pause_gc import pause_gc


@pytest.fixture(autouse=True)
def collector_enabled() -> Iterator[None]:
    gc.enable()
    yield
    gc.enable()


def test_it_is_paused_in_the_block_alone() -> None:
    with pause_gc():
        assert not gc.isenabled()
        with pause_gc():
            assert not gc.isenabled()
        assert not gc.isenabled()
    assert gc.isenabled()


def test_it_runs_again_after_an_error() -> None:
    with pytest.raises(ValueError, match="no"), pause_gc():
        raise ValueError("no")
    assert gc.isenabled()


def test_a_collector_that_was_off_stays_off() -> None:
    gc.disable()
    with pause_gc():
        pass
    assert not gc.isenabled()
