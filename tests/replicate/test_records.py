"""Records of the target's table."""

from itertools import permutations

import msgspec

from replicate.protocol.copies import SourceQueue
from replicate.protocol.position import Checkpoint, Position
from replicate.records import Link, Record, first_checkpoints, first_key, link_key, uncounted
from tests.replicate.clusters import config_of


def test_of_early_checkpoints_the_newest_epoch_counts_wherever_it_is_held() -> None:
    queue = SourceQueue("east", "T", "b", 0)
    checkpoints = [Checkpoint("b", 0, 0, 100), Checkpoint("b", 0, 0, 10, epoch=1), Checkpoint("b", 0, 0, 20, epoch=1)]
    for order in permutations(checkpoints):
        table = {first_key(queue, f"holder/{at}"): Record(queue=one) for at, one in enumerate(order)}
        assert first_checkpoints(table) == {queue: checkpoints[2]}


def test_clusters_that_no_link_of_the_file_copies_are_told_also_those_of_an_older_replicator() -> None:
    now_ms, day_ms = 10**12, 24 * 3600 * 1000
    links = config_of(dict.fromkeys("abcd", "127.0.0.1:1"), ["b>a", "a>b", "a>d"], "forward = false")
    table = {
        link_key(source): Record(link=Link(source, forwards=False, at_ms=at_ms))
        for source, at_ms in {"b": now_ms, "c": now_ms - 1, "d": now_ms, "e": now_ms - day_ms, "f": 0}.items()
    }
    assert uncounted(table, links, "a", "b", now_ms) == ["c", "d", "f"]
    assert uncounted(table, links, "a", "d", now_ms) == ["c", "f"]


def test_a_checkpoint_of_before_streams_were_kept_is_read() -> None:
    places = '"target_broker":"b","target_queue_id":0,"start":0,"next_offset":9,"target_end":9,"runs":[[0,0,9,true]]'
    checkpoint = msgspec.json.decode(f'{{"queue":{{{places}}}}}', type=Record).queue
    assert checkpoint is not None
    position = Position(checkpoint, keeps_origins=True)
    assert position.read_from == 9
    assert position.map.translate(4) == 4
