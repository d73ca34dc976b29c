"""Open transactions at the start of a broker, read from the half queue, the op queue and the ends of real queues.

A transaction ends in one batch of the log: real message, then op message.  A crash may cut the batch, so that the real
message is stored and the op message is not.  Then the real message is at the end of its queue, where this module looks.
A crash between the copy of a half message and the committed offset leaves both; their identity shows it.
"""

import logging
from dataclasses import dataclass, field
from typing import Final

from broker.transaction.half_message import (
    COMMIT,
    QUEUE_ID,
    TRANSACTION_MASK,
    HalfMessage,
    Identity,
    op_offsets,
)
from broker.transaction.open_transactions import OpenTransactions
from sprocket.common.errors import CorruptRecord
from sprocket.common.logs.peer_lines import peer_lines
from sprocket.remoting.message.topic_names import TRANS_HALF_TOPIC, TRANS_OP_HALF_TOPIC
from store.message_store import MessageStore
from store.record.record import Record, decode

logger = logging.getLogger(__name__)

# How far back a real queue is searched: RocketMQ's brokers write op messages seconds after the real messages.
_MAX_SEARCHED: Final = 4096


def read_record(store: MessageStore, topic: str, queue_id: int, offset: int) -> Record | str:
    """Return the record at an offset of a queue, or the reason why there is none."""
    entry = store.entry(topic, queue_id, offset)
    if entry is None:
        return "not in the queue"
    try:
        view = store.record_at(entry[0], entry[1])
        return "not in the log" if view is None else decode(view)
    except CorruptRecord as damage:
        return damage.reason


@dataclass
class _Found:
    """State of the scan."""

    named: set[int] = field(default_factory=set)  # listed by op messages
    open: dict[Identity, int] = field(default_factory=dict)
    targets: set[tuple[str, int]] = field(default_factory=set)
    oldest_physical: int = -1
    ended: list[int] = field(default_factory=list)  # without an op message


def recovered(store: MessageStore, half_offset: int, op_offset: int) -> tuple[OpenTransactions, list[int]]:
    """Return the open transactions, given the committed offsets (-1 for none), and what ended without an op message."""
    table = OpenTransactions(
        _within(store, TRANS_HALF_TOPIC, half_offset), _within(store, TRANS_OP_HALF_TOPIC, op_offset)
    )
    found = _Found()
    _read_ops(store, table, found)
    first = table.half_offset
    for offset in sorted(found.named):
        table.end(offset)
    _read_halves(store, table, found, first)
    _find_committed(store, table, found)
    logger.info(
        "event=transactions_recovered from=%d open_from=%d ended_by_op=%d ended_without_op=%d",
        first, table.half_offset, len(found.named), len(found.ended),
    )  # fmt: skip
    return table, found.ended


def _within(store: MessageStore, topic: str, offset: int) -> int:
    return min(max(offset, store.min_offset(topic, QUEUE_ID)), store.max_offset(topic, QUEUE_ID))


def _read_ops(store: MessageStore, table: OpenTransactions, found: _Found) -> None:
    for offset in range(table.op_offset, store.max_offset(TRANS_OP_HALF_TOPIC, QUEUE_ID)):
        record = read_record(store, TRANS_OP_HALF_TOPIC, QUEUE_ID, offset)
        if isinstance(record, str):
            peer_lines.error(logger, "", "event=op_message_unreadable queue_offset=%d reason=%r", offset, record)
            table.noted(offset, -1)
            continue
        named = op_offsets(record)
        found.named.update(named)
        table.noted(offset, max(named, default=-1))


def _read_halves(store: MessageStore, table: OpenTransactions, found: _Found, first: int) -> None:
    """Read all half messages, also those that are done: the original of such a copy is done as well."""
    for offset in range(first, store.max_offset(TRANS_HALF_TOPIC, QUEUE_ID)):
        record = read_record(store, TRANS_HALF_TOPIC, QUEUE_ID, offset)
        if isinstance(record, str):
            continue  # The check logs it.
        half = HalfMessage(record)
        is_open = table.is_open(offset)
        if is_open and half.prepared_offset in found.named:
            # The producer ended the first half message, and a broker has written a copy since.
            table.end(offset)
            found.ended.append(offset)
            is_open = False
        if half.is_copy:
            older = found.open.pop(half.identity, None)
            if older is not None:
                # No op message may list it: for an immune copy that would mean that its producer ended it.
                table.end(older)
        if is_open:
            _note_open(table, found, offset, half)


def _note_open(table: OpenTransactions, found: _Found, offset: int, half: HalfMessage) -> None:
    if half.is_copy:
        table.copied(offset, half.identity)
    found.open[half.identity] = offset
    if half.target is not None:
        found.targets.add(half.target)
    if found.oldest_physical < 0:
        found.oldest_physical = half.record.physical_offset


def _find_committed(store: MessageStore, table: OpenTransactions, found: _Found) -> None:
    """Look for real messages of open transactions, backward from the ends of their queues."""
    for topic, queue_id in sorted(found.targets):
        end = store.max_offset(topic, queue_id)
        for offset in range(end - 1, max(store.min_offset(topic, queue_id), end - _MAX_SEARCHED) - 1, -1):
            record = read_record(store, topic, queue_id, offset)
            if isinstance(record, str) or record.physical_offset < found.oldest_physical:
                break
            if record.sys_flag & TRANSACTION_MASK != COMMIT:
                continue
            half_offset = found.open.pop(HalfMessage(record).identity, None)
            if half_offset is not None:
                table.end(half_offset)
                found.ended.append(half_offset)
