"""Light queues: what one append puts into many queues, and what recovery makes of it."""

import random
import shutil
from pathlib import Path

import pytest

from sprocket.common.errors import DiskFull, RequestError
from sprocket.remoting.codes import ResponseCode
from sprocket.remoting.message.record import SysFlag
from store.message_store import MessageStore
from store.queue import consume_queue_table
from store.queue.multi_dispatch import places
from store.record.record import Record
from tests.store.reading import records_of
from tests.store.rig import FaultyDisk, Stores, message, noting
from tests.tiers import seeds

ON = {"enable_lmq": True, "enable_multi_dispatch": True}


@pytest.fixture
def stores(stores: Stores) -> Stores:
    stores.fields |= ON
    return stores


def addressed(*names: str, topic: str = "Parent", rest: bytes = b"", **fields: object) -> object:
    properties = rest + b"INNER_MULTI_DISPATCH\x01" + ",".join(names).encode() + b"\x02"
    return message(topic, properties=properties, **fields)


def light(store: MessageStore, name: str) -> list[Record]:
    """What a light queue holds, read as a consumer reads it."""
    first, end = store.min_offset(name, 0), store.max_offset(name, 0)
    records: list[Record] = []
    while first + len(records) < end:
        result = store.get(name, 0, first + len(records), 32, 1 << 20)
        assert result.message_count, result
        records += records_of(result.slices)
    for offset, record in enumerate(records, first):
        assert (name, offset) in places(bytes(record.properties)) or record.topic == name
    return records


def bodies(store: MessageStore, name: str) -> list[bytes]:
    return [bytes(record.body) for record in light(store, name)]


def test_a_store_tells_which_queues_a_message_begins(stores: Stores) -> None:
    store, many = stores.open(), addressed("%LMQ%a", "%LMQ%b")
    own, light_queues = [("Parent", 0)], [("%LMQ%a", 0), ("%LMQ%b", 0)]
    assert store.new_queues(own[0], [many]) == [*own, *light_queues]
    store.append([message("Parent")])
    assert store.new_queues(own[0], [many, addressed("%LMQ%c")]) == [*light_queues, ("%LMQ%c", 0)]
    assert store.new_queues(own[0], [addressed("%LMQ%a", sys_flag=SysFlag.TRANSACTION_PREPARED)]) == []
    store.append([many])
    assert store.new_queues(own[0], [many]) == []
    with pytest.raises(RequestError):
        store.append([message("Refused", body=b"x" * 5_000_000)])
    assert store.new_queues(("Refused", 0), []) == [("Refused", 0)], "it has no file"


def test_one_record_enters_every_queue_it_names_and_says_at_which_offset(stores: Stores) -> None:
    store = stores.open()
    store.append([addressed("%LMQ%a", "%LMQ%b", body=b"1"), message("Parent", body=b"plain")])
    appended = store.append([addressed("%LMQ%b", "%LMQ%c", body=b"2", tag="t")])
    assert (bodies(store, "%LMQ%a"), bodies(store, "%LMQ%b"), bodies(store, "%LMQ%c")) == ([b"1"], [b"1", b"2"], [b"2"])
    record = light(store, "%LMQ%c")[0]
    assert (record.topic, record.queue_offset, record.sys_flag) == ("Parent", 2, 0)
    assert b"INNER_MULTI_QUEUE_OFFSET\x011,0\x02" in bytes(record.properties)
    entry = store.entry("%LMQ%b", 0, 1)
    assert entry == store.entry("Parent", 0, 2) == (appended[0][1], appended[0][2], entry[2] if entry else 0)
    assert entry is not None and entry[2] == ord("t")


def test_arrivals_are_told_of_each_queue_once_per_batch(stores: Stores) -> None:
    store = stores.open()
    told: list[tuple[str, int, int, int]] = []
    store.on_arrival.append(noting(told))
    store.append([addressed("%LMQ%a", "%LMQ%b"), addressed("%LMQ%a"), addressed("%LMQ%a", "%LMQ%a")])
    assert sorted(told) == [("%LMQ%a", 0, 3, 0), ("%LMQ%b", 0, 1, 0), ("Parent", 0, 3, 0)]


def test_sends_to_the_name_of_a_queue_and_dispatches_into_it_share_its_offsets(stores: Stores) -> None:
    store = stores.open()
    batch = [addressed("%LMQ%a", body=b"0"), message("%LMQ%a", body=b"1"), addressed("%LMQ%b", "%LMQ%a", body=b"2")]
    store.append([*batch, addressed("%LMQ%a", topic="%LMQ%a", body=b"3")])
    expected = [b"0", b"1", b"2", b"3"]
    assert bodies(store, "%LMQ%a") == expected
    shutil.rmtree(stores.root / "consumequeue" / "%LMQ%a")
    stores.crash(store)
    shutil.rmtree(stores.root / "consumequeue" / "%LMQ%a", ignore_errors=True)
    assert bodies(stores.open(), "%LMQ%a") == expected


@pytest.mark.parametrize("fields", [{}, {"enable_lmq": True}, {"enable_multi_dispatch": True}])
def test_without_both_keys_the_property_is_only_kept(stores: Stores, fields: dict[str, bool]) -> None:
    stores.fields |= {"enable_lmq": False, "enable_multi_dispatch": False} | fields
    store = stores.open()
    store.append([addressed("%LMQ%a", "whatever")])
    assert store.queues() == [("Parent", 0)]


@pytest.mark.parametrize(
    "topic", ["%RETRY%group", "%DLQ%group", "rmq_sys_x", "SCHEDULE_TOPIC_XXXX", "RMQ_SYS_TRANS_HALF_TOPIC"]
)
def test_topics_on_a_message_s_way_do_not_dispatch(stores: Stores, topic: str) -> None:
    store = stores.open()
    store.append([addressed("%LMQ%a", topic=topic), addressed("%LMQ%a", sys_flag=int(SysFlag.TRANSACTION_PREPARED))])
    assert [name for name, _ in store.queues() if name == "%LMQ%a"] == []


def test_offsets_that_a_sender_wrote_himself_do_not_count(stores: Stores) -> None:
    store = stores.open()
    store.append([addressed("%LMQ%a", rest=b"INNER_MULTI_QUEUE_OFFSET\x0177\x02")])
    (record,) = light(store, "%LMQ%a")
    assert bytes(record.properties).count(b"INNER_MULTI_QUEUE_OFFSET") == 1


def test_a_name_with_a_slash_is_in_no_queue_and_empty_names_at_the_end_do_not_count(stores: Stores) -> None:
    store = stores.open()
    store.append([addressed("%LMQ%a", "%LMQ%x/y", "%LMQ%b", "", "")])
    assert store.queues() == [("Parent", 0), ("%LMQ%a", 0), ("%LMQ%b", 0)]
    store.append([addressed("", ",")])
    assert store.max_offset("Parent", 0) == 2


@pytest.mark.parametrize("name", ["Other", "", "%LMQ", "%LMQ%" + "x" * 300])
def test_other_names_are_refused_and_nothing_of_the_batch_is_kept(stores: Stores, name: str) -> None:
    store = stores.open()
    with pytest.raises(RequestError) as refusal:
        store.append([addressed("%LMQ%a"), addressed("%LMQ%a", name, "%LMQ%b")])
    assert refusal.value.code is ResponseCode.MESSAGE_ILLEGAL
    assert store.wrote_offset == store.max_offset("%LMQ%a", 0) == 0
    store.append([message("Parent"), addressed("%LMQ%b", body=b"kept")])
    assert bodies(store, "%LMQ%b") == [b"kept"]
    assert store.max_offset("%LMQ%a", 0) == 0


def test_beyond_the_most_queues_messages_for_new_ones_are_refused(stores: Stores) -> None:
    stores.fields["max_lmq_consume_queue_num"] = 2
    store = stores.open()
    store.append([addressed("%LMQ%a", "%LMQ%b")])
    for refused in (addressed("%LMQ%c"), message("%LMQ%c")):
        with pytest.raises(RequestError, match="LMQ_CONSUME_QUEUE_NUM_EXCEEDED") as error:
            store.append([refused])
        assert error.value.code is ResponseCode.LMQ_QUOTA_EXCEEDED
    store.delete_topic("%LMQ%a")
    store.append([addressed("%LMQ%c", "%LMQ%b")])
    assert len(bodies(store, "%LMQ%b")) == 2


def test_a_refused_message_begins_no_queue(stores: Stores) -> None:
    stores.fields["max_lmq_consume_queue_num"] = 3
    store = stores.open()
    store.append([addressed("%LMQ%a")])
    for names in (("%LMQ%b", "%LMQ%c", "Other"), ("%LMQ%b", "%LMQ%c", "%LMQ%d")):
        with pytest.raises(RequestError):
            store.append([addressed(*names)])
    assert [name for name, _ in store.queues()] == ["Parent", "%LMQ%a"]
    store.append([addressed("%LMQ%b", "%LMQ%c")])
    assert store.max_offset("%LMQ%c", 0) == 1


def test_a_failed_write_takes_all_queues_back(stores: Stores) -> None:
    disk = stores.disk = FaultyDisk()
    store = stores.open()
    store.append([addressed("%LMQ%a", body=b"0")])
    disk.write_fault = lambda path: "%LMQ%b" in str(path)
    with pytest.raises(DiskFull):
        store.append([addressed("%LMQ%a", "%LMQ%b", body=b"lost")])
    disk.write_fault = None
    store.append([addressed("%LMQ%a", "%LMQ%b", body=b"1")])
    assert (bodies(store, "%LMQ%a"), bodies(store, "%LMQ%b")) == ([b"0", b"1"], [b"1"])


@pytest.mark.parametrize("seed", seeds(8))
def test_recovery_gives_the_queues_back_whatever_was_lost_of_them(stores: Stores, seed: int) -> None:
    rng = random.Random(seed)
    stores.fields["enabled_append_prop_crc"] = seed % 2 == 0
    store = stores.open()
    names = [f"%LMQ%{number}" for number in range(6)]
    for round_number in range(3):
        for number in range(25):
            batch = [message("Parent", rng.randrange(2), b"INNER_MULTI_QUEUE_OFFSET\x019\x02", tag="p")]
            if rng.random() < 0.7:
                chosen = rng.sample(names, rng.randrange(1, 4))
                batch.append(addressed(*chosen, body=b"%d.%d" % (round_number, number), tag="x"))
            if rng.random() < 0.2:
                batch.append(message(rng.choice(names), body=b"direct"))
            store.append(batch)
        if round_number == 1:
            store.delete_topic("%LMQ%5")
            store.delete_topic("Parent")
        expected = {name: bodies(store, name) for name in names}
        (stores.close if rng.random() < 0.3 else stores.crash)(store)
        queues = stores.root / "consumequeue"
        for path in sorted(queues.iterdir()):
            if rng.random() < 0.3:
                shutil.rmtree(path)
        if rng.random() < 0.5:
            (stores.root / "queuelist").unlink(missing_ok=True)
        store = stores.open()
        assert {name: bodies(store, name) for name in names} == expected


def test_a_queue_survives_that_its_parent_topic_is_deleted(stores: Stores) -> None:
    store = stores.open()
    store.append([addressed("%LMQ%a", body=b"kept")])
    store.delete_topic("Parent")
    assert bodies(store, "%LMQ%a") == [b"kept"]
    stores.crash(store)
    shutil.rmtree(stores.root / "consumequeue" / "%LMQ%a")
    store = stores.open()
    assert bodies(store, "%LMQ%a") == [b"kept"]
    assert store.max_offset("Parent", 0) == 0


def test_a_store_with_queues_keeps_them_while_the_keys_are_off(stores: Stores) -> None:
    store = stores.open()
    store.append([addressed("%LMQ%a", body=b"%d" % number) for number in range(80)])
    stores.crash(store)
    stores.fields |= {"enable_lmq": False, "enable_multi_dispatch": False}
    (stores.root / "queuelist").unlink(missing_ok=True)
    store = stores.open()
    assert len(bodies(store, "%LMQ%a")) == 80


def test_a_lie_about_an_offset_does_not_fill_the_disk(stores: Stores) -> None:
    stores.fields["enable_multi_dispatch"] = False
    store = stores.open()
    lie = b"INNER_MULTI_QUEUE_OFFSET\x01%d\x02"
    store.append([addressed("%LMQ%a", rest=lie % 0), addressed("%LMQ%a", rest=lie % (1 << 50))])
    stores.close(store)
    stores.fields["enable_multi_dispatch"] = True
    shutil.rmtree(stores.root / "consumequeue")
    store = stores.open()
    assert store.max_offset("%LMQ%a", 0) == 1


@pytest.mark.parametrize("count", [400, pytest.param(10_000, marks=pytest.mark.slow)])
def test_thousands_of_queues_live_with_few_open_files(
    stores: Stores, monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    monkeypatch.setattr(consume_queue_table, "descriptor_budget", lambda: 100)
    stores.fields |= {"mapped_file_size_commit_log": 16 << 20, "mapped_file_size_consume_queue": 20 * 10}
    store = stores.open()
    names = [f"%LMQ%client{number}" for number in range(count)]
    before = open_files()
    for first in range(0, count, 50):
        store.append([addressed(*names[first : first + 50])])
    assert open_files() < before + 150
    assert all(store.max_offset(name, 0) == 1 for name in names)
    stores.crash(store)
    store = stores.open()
    assert open_files() < before + 150
    assert all(store.max_offset(name, 0) == 1 for name in names)
    assert len(bodies(store, names[0])) == len(bodies(store, names[-1])) == 1


def open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def test_light_queues_are_removed_after_one_note_and_a_crash_brings_none_back(stores: Stores) -> None:
    store = stores.open()
    store.append([addressed("%LMQ%a", "%LMQ%b", "%LMQ%c", body=b"old")])
    removal = store.light_removal(["%LMQ%a", "%LMQ%b", "%LMQ%unknown"])
    removal.note()
    assert [removal.remove(name) for name in ("%LMQ%a", "%LMQ%b", "%LMQ%unknown")] == [True] * 3
    assert store.light_queues() == ["%LMQ%c"]
    store.append([addressed("%LMQ%a", body=b"new")])
    store.flush()
    store = stores.reopen(store, crash=True)
    assert sorted(store.light_queues()) == ["%LMQ%a", "%LMQ%c"]
    assert (bodies(store, "%LMQ%a"), bodies(store, "%LMQ%c")) == ([b"new"], [b"old"])
    assert bodies(store, "Parent") == [b"old", b"new"]


def test_a_light_queue_that_gets_a_message_before_its_removal_stays(stores: Stores) -> None:
    store = stores.open()
    store.append([addressed("%LMQ%a", "%LMQ%b")])
    removal = store.light_removal(["%LMQ%a", "%LMQ%b"])
    removal.note()
    store.append([addressed("%LMQ%a", body=b"new")])
    assert [removal.remove(name) for name in ("%LMQ%a", "%LMQ%b")] == [False, True]
    assert store.light_queues() == ["%LMQ%a"]
    assert bodies(store, "%LMQ%a")[-1] == b"new"
    store = stores.reopen(store, crash=True)
    assert bodies(store, "%LMQ%a")[-1] == b"new"


def test_a_light_queue_stays_if_its_removal_cannot_be_noted(stores: Stores) -> None:
    disk = stores.disk = FaultyDisk()
    store = stores.open()
    store.append([addressed("%LMQ%a")])
    removal = store.light_removal(["%LMQ%a"])
    disk.small_write_fails = True
    removal.note()
    with pytest.raises(DiskFull):
        removal.remove("%LMQ%a")
    disk.small_write_fails = False
    assert store.light_queues() == ["%LMQ%a"]
