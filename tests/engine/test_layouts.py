"""What the compiled engine and pure Python both say of records, entries and limits is the same."""

from typing import Any

import pytest

from broker.filter.subscription_filter import MAX_TAG_CODES
from broker.pop.planner import LATE_MS, MAX_MESSAGES
from broker.pop.records import ACK_INTERVAL_MS
from sprocket.engine.choice import native
from sprocket.remoting.message import record as layout
from sprocket.remoting.message.pop_extra_info import MAX_HANDLE_CHARS
from sprocket.remoting.message.properties import VALUE_END_OCTET
from sprocket.remoting.message.record import FIXED_IPV4_RAW
from store.layout import CONSUME_QUEUE_UNIT_BYTES, RECORD_FIXED_DTYPE
from store.queue.kept_values import BLOCK_ENTRIES
from store.record.checksum import SEAL_BYTES
from store.record.record import FIXED_IPV4_BYTES
from store.timer.timer_log import UNIT_BYTES

SIZES = FIXED_IPV4_RAW.size, CONSUME_QUEUE_UNIT_BYTES


def engine(name: str) -> Any:
    """Return a compiled module."""
    module = native(name)
    if module is None:
        pytest.skip("the compiled engine is not built")
    return module


def test_kernels() -> None:
    assert engine("broker.send.kernel_native").SIZES == SIZES
    assert (*SIZES, MAX_HANDLE_CHARS) == engine("broker.ack.kernel_native").SIZES
    pops = engine("broker.pop.kernel_native")
    assert pops.SIZES == SIZES
    assert pops.LIMITS == (MAX_MESSAGES, LATE_MS, ACK_INTERVAL_MS, MAX_TAG_CODES)
    assert engine("broker.pull.kernel_native").MAX_CODES == MAX_TAG_CODES
    assert engine("broker.transaction.kernel_native").QUEUE_ENTRY_BYTES == CONSUME_QUEUE_UNIT_BYTES


def test_scans() -> None:
    scan = engine("store.scan.scan_native")
    assert {
        "FIXED_IPV4_BYTES": FIXED_IPV4_BYTES,
        "SEAL_BYTES": SEAL_BYTES,
        "VALUE_END": VALUE_END_OCTET,
        **{name: getattr(layout, name) for name in scan.LAYOUT if hasattr(layout, name)},
    } == scan.LAYOUT
    assert {name: place[1] for name, place in (RECORD_FIXED_DTYPE.fields or {}).items()} == scan.RECORD_FIXED


def test_entries_of_queues_and_units_of_the_timer() -> None:
    values = engine("store.queue.record_filter_native")
    assert (values.BLOCK_ENTRIES, values.UNIT_BYTES) == (BLOCK_ENTRIES, CONSUME_QUEUE_UNIT_BYTES)
    assert engine("store.timer.timer_units_native").UNIT_BYTES == UNIT_BYTES
