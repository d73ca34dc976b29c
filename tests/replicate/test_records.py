"""Records of the target's table."""

from itertools import permutations

from replicate.protocol.copies import SourceQueue
from replicate.protocol.position import Checkpoint
from replicate.records import Record, first_checkpoints, first_key


def test_of_early_checkpoints_the_newest_epoch_counts_wherever_it_is_held() -> None:
    queue = SourceQueue("east", "T", "b", 0)
    checkpoints = [Checkpoint("b", 0, 0, 100), Checkpoint("b", 0, 0, 10, epoch=1), Checkpoint("b", 0, 0, 20, epoch=1)]
    for order in permutations(checkpoints):
        table = {first_key(queue, f"holder/{at}"): Record(queue=one) for at, one in enumerate(order)}
        assert first_checkpoints(table) == {queue: checkpoints[2]}
