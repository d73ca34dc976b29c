"""Batch ConsumeQueues are compared with the log and rebuilt from it."""

import shutil
from pathlib import Path

import pytest

from sprocket.remoting.message.record import SysFlag
from store.layout import BATCH_CONSUME_QUEUE_UNIT_BYTES as UNIT
from store.layout import file_name
from store.queue.logic_queue import QueueType
from store.repair.repair import Repair
from tests.clock import ManualClock
from tests.store.inspection.stopped_store import SHAPE, change, check, check_and_plan, content_of, kinds
from tests.store.rig import Stores, message

TOPIC = "Batches"


def fill(stores: Stores) -> Path:
    """Append forty records of one to five messages in two queues, four units to a file."""
    stores.queue_types[TOPIC] = QueueType.BATCH
    stores.fields["mapped_file_size_batch_consume_queue"] = 4 * UNIT
    store = stores.open()
    for number in range(40):
        properties = b"INNER_NUM\x01%d\x02" % (number % 5 + 1)
        flags = int(SysFlag.INNER_BATCH | SysFlag.NEED_UNWRAP)
        store.append([message(TOPIC, number % 2, b"body", f"t{number}", sys_flag=flags, properties=properties)])
    stores.close(store)
    return stores.root


def test_a_good_queue_has_no_findings(stores: Stores) -> None:
    store = check(fill(stores))
    assert kinds(store) == set()
    assert len(store.batch_queues.by_key) == 2


@pytest.mark.parametrize("damage", ["flip", "file", "queue", "topic"])
def test_a_damaged_queue_is_found_and_comes_back_byte_for_byte(stores: Stores, damage: str) -> None:
    root = fill(stores)
    queues = root / "batchconsumequeue" / TOPIC
    before = content_of(queues)
    if damage == "flip":
        change(queues / "1" / file_name(0), lambda content: content.__setitem__(35, content[35] ^ 1))
    elif damage == "file":
        (queues / "1" / file_name(4 * UNIT)).unlink()
    elif damage == "queue":
        shutil.rmtree(queues / "1")
    else:
        shutil.rmtree(queues)
        (root / "config").mkdir()
        (root / "config" / "topics.json").write_text(
            '{"topicConfigTable":{"Batches":{"topicName":"Batches","attributes":{"queue.type":"BatchCQ"}}}}'
        )
    store, actions = check_and_plan(root)
    assert kinds(store) == {"batch-queue"}
    Repair(root, SHAPE, ManualClock()).act(store, actions)
    assert kinds(check(root)) == set()
    if damage != "topic":  # without a file its size is RocketMQ's
        assert content_of(queues) == before
