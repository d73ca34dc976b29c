"""Stores that a command writes to: their settings, and how they are opened."""

from collections.abc import Callable
from pathlib import Path
from queue import SimpleQueue

from msgspec.structs import replace

from sprocket.common.clock import SystemClock
from sprocket.common.files.config_file import ConfigFile
from sprocket.remoting.bodies.topic import TopicConfig, TopicConfigTable
from sprocket.remoting.codec.fastjson import loads
from sprocket.remoting.codec.pretty_json import pretty
from sprocket_cli.client_session import WrongUsage
from store.config.store_config import StoreConfig
from store.inspection.file_sequence import FileSequence
from store.inspection.file_view import is_locked
from store.inspection.inspected_store import StoreShape
from store.inspection.queue_table_inspection import QueueTableInspection
from store.message_store import MessageStore
from store.record.record import TagsCodes

Notices = SimpleQueue[Callable[[], None]]


def settings_of(directory: Path, shape: StoreShape) -> StoreConfig:
    """Return what the store is opened with: files of the size that those that are there have."""
    log = FileSequence(shape.commit_log or directory / "commitlog", shape.segment_bytes)
    queues = QueueTableInspection(directory / "consumequeue", TagsCodes(shape.delay_levels), shape.queue_file_bytes)
    default = StoreConfig(store_path_root_dir=directory.absolute())
    return StoreConfig(
        store_path_root_dir=directory.absolute(),
        store_path_commit_log=shape.commit_log,
        mapped_file_size_commit_log=log.file_bytes or default.mapped_file_size_commit_log,
        mapped_file_size_consume_queue=queues.file_bytes or default.mapped_file_size_consume_queue,
        mapped_file_size_batch_consume_queue=(
            shape.batch_queue_file_bytes or default.mapped_file_size_batch_consume_queue
        ),
        max_hash_slot_num=shape.index_slots or default.max_hash_slot_num,
        max_index_num=shape.index_units or default.max_index_num,
        max_message_size=shape.max_message_bytes,
        message_delay_level=shape.delay_levels,
    )


def open_store(directory: Path, settings: StoreConfig, notices: Notices) -> MessageStore:
    """Open the store; its threads put what is to run in this thread into `notices`.  Raises WrongUsage if in use."""
    if is_locked(directory / "lock"):
        raise WrongUsage(f"{directory}: a broker uses this store: stop it first")
    store = MessageStore(settings, clock=SystemClock(), notify=notices.put)
    store.start()
    return store


def add_topics(directory: Path, queues: dict[str, int]) -> None:
    """Let the broker know the topics and their queues: it refuses to read one that is not in topics.json."""

    file = ConfigFile(directory / "config" / "topics.json")
    table = file.load(lambda content: loads(content, TopicConfigTable)) or TopicConfigTable()
    known = dict(table.topic_config_table)
    for topic, count in queues.items():
        config = known.get(topic)
        if config is None:
            known[topic] = TopicConfig(topic, count, count)
        elif config.read_queue_nums < count:
            known[topic] = replace(config, read_queue_nums=count)
    if known != table.topic_config_table:
        table.topic_config_table = known
        file.write(pretty(table))
