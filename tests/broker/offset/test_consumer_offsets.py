import random
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.offset.consumer_offsets import ConsumerOffsets, ConsumerOffsetTable, WrittenOffsetTable, decoded
from broker.plan.version import PlanVersion
from sprocket.common.errors import StoreError
from sprocket.common.files.config_file import ConfigFile
from sprocket.common.next_turn import at_once
from sprocket.remoting.codec.fastjson import dumps, loads
from tests.clock import ManualClock
from tests.tiers import seeds


def table(root: Path) -> ConsumerOffsets:
    offsets = ConsumerOffsets(ConfigFile(root / "consumerOffset.json"), ManualClock(), PlanVersion())
    offsets.load()
    return offsets


def test_commit_is_found_again_after_a_restart(tmp_path: Path) -> None:
    offsets = table(tmp_path)
    offsets.commit("CG", "Orders", 2, 17)
    offsets.persist()
    again = table(tmp_path)
    assert again.query("CG", "Orders", 2) == 17
    assert again.query("CG", "Orders", 0) == -1
    assert again.query("Other", "Orders", 2) == -1


def test_only_changes_are_written(tmp_path: Path) -> None:
    offsets = table(tmp_path)
    offsets.persist_changes()
    assert not (tmp_path / "consumerOffset.json").exists()
    offsets.commit("CG", "Orders", 0, 1)
    offsets.persist_changes()
    (tmp_path / "consumerOffset.json").unlink()
    offsets.persist_changes()
    assert not (tmp_path / "consumerOffset.json").exists()


def test_failed_write_is_tried_again(tmp_path: Path) -> None:
    offsets = table(tmp_path)
    offsets.commit("CG", "Orders", 0, 1)
    (tmp_path / "consumerOffset.json.tmp").mkdir()
    with pytest.raises(StoreError):
        offsets.persist()
    (tmp_path / "consumerOffset.json.tmp").rmdir()
    offsets.persist()
    assert table(tmp_path).query("CG", "Orders", 0) == 1


def test_data_version_moves_every_500_commits(tmp_path: Path) -> None:
    offsets = table(tmp_path)
    for offset in range(999):
        offsets.commit("CG", "Orders", 0, offset)
    assert offsets.data_version.counter == 1


def test_reset_hides_the_commit_until_it_is_taken(tmp_path: Path) -> None:
    offsets = table(tmp_path)
    offsets.commit("CG", "Orders", 0, 100)
    offsets.note_pull("CG", "Orders", 0, 120)
    offsets.reset("CG", "Orders", 0, 5)
    assert offsets.has_resets
    assert offsets.is_reset("CG", "Orders", 0)
    assert offsets.query("CG", "Orders", 0) == offsets.query_pull("CG", "Orders", 0) == 5
    assert offsets.take_reset("CG", "Orders", 1) is None
    assert offsets.take_reset("CG", "Orders", 0) == 5
    assert offsets.take_reset("CG", "Orders", 0) is None
    assert not offsets.has_resets
    assert offsets.query("CG", "Orders", 0) == 5


def test_pull_offset_falls_back_to_the_commit(tmp_path: Path) -> None:
    offsets = table(tmp_path)
    offsets.commit("CG", "Orders", 0, 3)
    assert offsets.query_pull("CG", "Orders", 0) == 3
    offsets.note_pull("CG", "Orders", 0, 9)
    assert offsets.query_pull("CG", "Orders", 0) == 9


def test_groups_of_a_topic_and_topics_of_a_group(tmp_path: Path) -> None:
    offsets = table(tmp_path)
    for group, topic in (("A", "T1"), ("A", "T2"), ("AB", "T1")):
        offsets.commit(group, topic, 0, 1)
    assert offsets.topics_of("A") == {"T1", "T2"}
    assert offsets.groups_of("T1") == {"A", "AB"}
    offsets.remove_topic("T1")
    assert offsets.groups_of("T1") == set()
    assert offsets.topics_of("A") == {"T2"}
    offsets.clone("A", "C", "T2")
    offsets.remove_group("A")
    assert offsets.groups_of("T2") == {"C"}


def test_offsets_past_the_end_are_moved_back(tmp_path: Path) -> None:
    offsets = table(tmp_path)
    offsets.commit("CG", "Orders", 0, 100)
    offsets.commit("CG", "Orders", 1, 10)
    offsets.clamp(lambda topic, queue_id: 40)
    assert offsets.queues("CG", "Orders") == {0: 40, 1: 10}


@pytest.mark.parametrize("seed", seeds(5))
def test_a_replica_that_takes_the_deltas_has_the_same_offsets(tmp_path: Path, seed: int) -> None:
    master, replica, choose = table(tmp_path / "master"), table(tmp_path / "replica"), random.Random(seed)
    assert master.take_deltas() == {}
    seen = 0
    for _ in range(400):
        group, topic, queue = (f"{kind}{choose.randrange(4)}" for kind in ("G", "T", ""))
        match choose.randrange(12):
            case 0:
                master.remove_topic(topic)
            case 1:
                master.remove(group, topic)
            case 2:
                master.remove_group(group)
            case 3:
                master.reset(group, topic, int(queue), choose.randrange(100))
            case 4:
                master.clone(group, "G0", topic)
            case 5:
                master.assign(group, topic, int(queue), choose.randrange(100))
            case 6:
                master.clamp(lambda *_: 50)
            case 7:
                # As it goes over the wire.
                deltas = {key: dict(queues) for key, queues in master.take_deltas().items()}
                seen += len(deltas)
                replica.merge(deltas)
                assert replica.snapshot().offset_table == master.snapshot().offset_table
                assert master.take_deltas() == {}
            case _:
                master.commit(group, topic, int(queue), choose.randrange(100))
    assert seen
    master.forget_deltas()
    master.commit("G0", "T0", 0, 1)
    assert master.take_deltas() == {}


NAMES = ["Orders", "%RETRY%CG", "a b", "it's", 'quo"te', "back\\slash", "a: 1, b", "Größe", "x,1:2", "{3:4}", ""]


@given(
    st.dictionaries(
        st.tuples(st.sampled_from(NAMES), st.sampled_from(NAMES)),
        st.dictionaries(st.integers(0, 40), st.integers(-1, 1 << 62), max_size=4),
        max_size=6,
    )
)
def test_the_table_is_written_and_read_as_fastjson_does_it(found: dict[tuple[str, str], dict[int, int]]) -> None:
    """Fast ways for the usual names; the same for all others."""
    offsets = ConsumerOffsets(ConfigFile(Path("unused")), ManualClock(), PlanVersion())
    content = ConsumerOffsetTable(offset_table={f"{topic}@{group}": queues for (topic, group), queues in found.items()})
    offsets.replace(content)
    assert offsets.encode() == dumps(offsets.snapshot())
    assert decoded(offsets.encode()) == loads(offsets.encode(), ConsumerOffsetTable)
    assert loads(offsets.encode(), WrittenOffsetTable) == offsets.snapshot()


def test_a_large_table_is_read_in_pieces() -> None:
    table = {f"Topic-{number}@Group-{number}": {queue: number * queue for queue in range(8)} for number in range(2_000)}
    content = dumps(ConsumerOffsetTable(offset_table=table))
    assert len(content) > 4 * 32 * 1024
    assert decoded(content).offset_table == table


def test_a_large_table_is_written_in_steps_while_it_changes() -> None:
    offsets = ConsumerOffsets(ConfigFile(Path("unused")), ManualClock(), PlanVersion())
    table = {f"T{number % 50}@G{number}": {0: 1} for number in range(3_000)}
    table["Wide@G"] = {queue_id: queue_id for queue_id in range(2_500)}
    offsets.replace(ConsumerOffsetTable(offset_table=dict(table)))
    assert decoded(offsets.encode()).offset_table == table
    steps = offsets.encoded()
    for number in range(20):
        next(steps)
        offsets.commit("G1", "T1", 0, 2)
        offsets.commit(f"New{number}", "T", 0, 1)
        offsets.remove_group("G2999")
    found = decoded(at_once(steps)).offset_table
    assert found.keys() == table.keys()  # those of the beginning
    assert found["Wide@G"] == table["Wide@G"]
