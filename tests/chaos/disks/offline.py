"""Reads a store that no broker has open, through the store itself."""

from dataclasses import dataclass
from pathlib import Path

from sprocket.common.clock import SystemClock
from store.config.store_config import StoreConfig
from store.message_store import MessageStore
from tests.chaos.load import PROPERTIES, QUEUES, TOPIC, records


@dataclass(frozen=True)
class Content:
    """What a store holds after its recovery."""

    log_end: int
    # queue id -> (queue offset, key) of each message
    queues: dict[int, list[tuple[int, str]]]
    topics: str


def read_store(root: Path) -> Content:
    """Recover the store below `root`, read its queues, and close it.  Raises StoreError."""
    config = StoreConfig(
        store_path_root_dir=root,
        mapped_file_size_commit_log=int(PROPERTIES["mappedFileSizeCommitLog"]),
        mapped_file_size_consume_queue=int(PROPERTIES["mappedFileSizeConsumeQueue"]),
        message_delay_level=PROPERTIES["messageDelayLevel"],
        max_hash_slot_num=int(PROPERTIES["maxHashSlotNum"]),
        max_index_num=int(PROPERTIES["maxIndexNum"]),
    )
    store = MessageStore(config, clock=SystemClock(), notify=lambda callback: callback())
    store.start()
    try:
        queues = {queue: _read_queue(store, queue) for queue in range(QUEUES)}
        log_end = store.wrote_offset
    finally:
        store.shutdown()
    topics = root / "config" / "topics.json"
    return Content(log_end, queues, topics.read_text() if topics.exists() else "")


def _read_queue(store: MessageStore, queue: int) -> list[tuple[int, str]]:
    messages: list[tuple[int, str]] = []
    for offset in range(store.min_offset(TOPIC, queue), store.max_offset(TOPIC, queue)):
        entry = store.entry(TOPIC, queue, offset)
        view = None if entry is None else store.record_at(entry[0], entry[1])
        if view is None:
            messages.append((offset, "unreadable"))
        else:
            messages += records(view)
    return messages
