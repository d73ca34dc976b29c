"""A client's batch is one piece of work for the kernel, and becomes what the handler would make of it."""

from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import MagicMock, patch

import pytest

from broker.send.send_frames import SendFrames
from sprocket.common.refusal_reasons import Reason
from tests.fuzz.twins.send_targets import PROPERTIES, Twin, compare_sends, compiled
from tests.send_headers import client_batch, send_frame, send_header

needs_engine = pytest.mark.skipif(compiled is None, reason="the engine is not built")
# Bytes of the last message of a cut batch, without which it is whole.
WHOLE = len(client_batch((0, b"", b"")))
OWN = b"UNIQ_KEY\x010A000001000000000000000000000001\x02TAGS\x01TagA\x02K\x01a#b\x02"


def batch(content: bytes, properties: str = "WAIT\x01true\x02") -> bytes:
    return send_frame(5, send_header(batch=True, properties=properties), content)


@contextmanager
def counted() -> Iterator[MagicMock]:
    """Count the batches whose records the kernel makes."""
    append = SendFrames.append_batch
    with patch.object(SendFrames, "append_batch", autospec=True, side_effect=append) as taken:
        yield taken


@needs_engine
@pytest.mark.parametrize(
    ("common", "is_for_kernel"),
    [(common, True) for common in (
        "WAIT\x01true\x02", "", "UNIQ_KEY\x01K", "TAGS\x01B\x02__SHARDINGKEY\x01s\x02",
        "TAGS\x01\x02", "INNER_SHARDING\x01hash\x02", "DELAY\x010\x02", "C\x01" + "v" * 30_000 + "\x02",
    )] + [(common, False) for common in (
        "TAGS\x01Zürich\x02", "__CRC32#\x010123456789\x02", "INNER_EXPECTED_OFFSET\x013\x02",
    )],
)  # fmt: skip
def test_kernel_and_handler_store_and_answer_the_same(common: str, is_for_kernel: bool) -> None:
    contents = [
        client_batch((7, b"body", text.encode()), (0, b"", b""), (-1, b"z" * 500, b"TAGS\x01A\x02open\x01end"))
        for text in (OWN.decode(), *PROPERTIES)
    ]
    with counted() as taken:
        compare_sends([batch(content, common) for content in contents], sync_flush=False, segment_bytes=1 << 20)
        compare_sends([batch(content, common) for content in contents[:3]], sync_flush=True, segment_bytes=1 << 20)
    assert bool(taken.call_count) == is_for_kernel


@needs_engine
@pytest.mark.parametrize("cut", [cut for cut in range(1, 30) if cut != WHOLE])
def test_a_batch_that_is_cut_is_refused_by_both(cut: int) -> None:
    content = client_batch((0, b"first", OWN), (0, b"", b""))
    whole = batch(content)
    _, _, refusals, *_ = compare_sends([whole, batch(content[:-cut]), whole], sync_flush=False)
    assert refusals == {Reason.MESSAGE_ILLEGAL: 1}


@needs_engine
def test_the_kernel_makes_the_records_of_usual_batches() -> None:
    twin = Twin(True, sync_flush=False, segment_bytes=1 << 20)
    content = client_batch(*[(0, b"body", OWN)] * 100)
    large = client_batch(*[(0, b"b", OWN + b"L\x01" + b"v" * 20_000 + b"\x02")] * 5)
    with counted() as taken:
        twin.serve([batch(content), batch(content), batch(large)])  # the first one begins the queue
    assert taken.call_count == 3
    assert twin.store.max_offset("Orders", 0) == 205


@needs_engine
def test_a_refused_batch_begins_no_queue() -> None:
    content = client_batch((0, b"first", OWN), (0, b"", b""))
    _, _, refusals, *_ = compare_sends(
        [batch(content[:-1]), batch(content, "INNER_EXPECTED_OFFSET\x013\x02")] * 2, sync_flush=False
    )
    assert sum(refusals.values()) > 2
    twin = Twin(True, sync_flush=False)
    twin.serve([batch(content[:-1]), batch(content, "INNER_EXPECTED_OFFSET\x013\x02")])
    assert list(twin.store.queues()) == []
