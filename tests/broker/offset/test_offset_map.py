"""Offsets of usual and of light topics look the same, and those of light topics take little memory."""

from broker.offset.offset_map import OffsetMap
from sprocket.remoting.message.lite_topics import lite_queue

LITE = lite_queue("Sessions", "one")


def _filled() -> OffsetMap:
    offsets = OffsetMap()
    for topic, group, queue_id, offset in (
        ("Orders", "G", 0, 5), ("Orders", "G", 3, 6), ("Orders", "H", 0, 7), (LITE, "G", 0, 8), (LITE, "G", 2, 9),
        ("%LMQ%plain", "H", 0, 10),
    ):  # fmt: skip
        assert offsets.put(topic, group, queue_id, offset) is None
    return offsets


def test_offsets_are_found_by_topic_group_and_queue() -> None:
    offsets = _filled()
    assert offsets.put(LITE, "G", 0, 11) == 8
    assert [offsets.get(LITE, "G", each) for each in (0, 2, 1)] == [11, 9, None]
    assert (offsets.queues(LITE, "G"), offsets.queues("Orders", "G"), offsets.queues(LITE, "H")) == (
        {0: 11, 2: 9}, {0: 5, 3: 6}, {},
    )  # fmt: skip
    assert (offsets.topics_of("G"), offsets.topics_of("H")) == ({"Orders", LITE}, {"Orders", "%LMQ%plain"})
    assert (offsets.groups_of("Orders"), offsets.groups_of(LITE)) == ({"G", "H"}, {"G"})


def test_each_key_is_listed_once_as_it_was_when_asked() -> None:
    offsets = _filled()
    entries = offsets.entries()
    assert offsets.remove("%LMQ%plain", "H")
    assert not offsets.remove("%LMQ%plain", "H")
    found = list(entries)
    assert len(found) == 4
    assert dict(found) == {
        "Orders@G": {0: 5, 3: 6}, "Orders@H": {0: 7}, f"{LITE}@G": {0: 8, 2: 9}, "%LMQ%plain@H": {0: 10},
    }  # fmt: skip
    assert len(list(offsets.entries())) == 3


def test_queues_of_a_key_are_replaced_and_no_queues_remove_it() -> None:
    offsets = _filled()
    offsets.put_queues(f"{LITE}@G", {0: 1})
    offsets.put_queues("Orders@G", {})
    assert (offsets.queues(LITE, "G"), offsets.queues("Orders", "G")) == ({0: 1}, {})


def test_names_of_light_topics_are_shared() -> None:
    own = "".join(LITE)
    offsets = OffsetMap(lambda name: own if name == own else name)
    offsets.put(LITE[:5] + LITE[5:], "G", 0, 3)
    (shared,) = offsets.light["G"]
    assert shared is own
