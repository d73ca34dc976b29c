"""Bodies about topics."""

from remoting.bodies.topic import DataVersion


def test_data_versions_are_the_same_when_all_three_parts_are() -> None:
    version = DataVersion(state_version=1, timestamp=2, counter=3)
    assert version == DataVersion(1, 2, 3)
    assert not version != DataVersion(1, 2, 3)  # noqa: SIM202 # both operators are asked for
    for other in (DataVersion(0, 2, 3), DataVersion(1, 0, 3), DataVersion(1, 2, 0)):
        assert version != other
        assert not version == other  # noqa: SIM201


def test_a_change_makes_a_new_data_version() -> None:
    version = DataVersion(timestamp=5, counter=1)
    version.next(9)
    assert (version.timestamp, version.counter) == (9, 2)
