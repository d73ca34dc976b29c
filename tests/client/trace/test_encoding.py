"""Records of traces: RocketMQ's text, and what damaged text does."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sprocket.client.trace.encoding import MessageType, TraceKind, TraceRecord, decode, encode, keys_of

PUB = TraceRecord(
    kind=TraceKind.PUB, message_id="0A0000010000", time_ms=1700000000000, group="P", region="DefaultRegion", topic="T",
    tags="TagA", keys="k1 k2", store_host="10.0.0.1:10911", body_bytes=7, cost_ms=3, message_type=MessageType.DELAY,
    offset_message_id="7F", is_success=True,
)  # fmt: skip
BEFORE = TraceRecord(
    kind=TraceKind.SUB_BEFORE, message_id="0A", time_ms=5, group="G", request_id="R", retry_times=2, keys="k"
)
AFTER = TraceRecord(
    kind=TraceKind.SUB_AFTER, message_id="0A", time_ms=9, group="G", request_id="R", cost_ms=4, is_success=False,
    keys="k", context_code=4, region="DefaultRegion",
)  # fmt: skip
END = TraceRecord(
    kind=TraceKind.END_TRANSACTION, message_id="0A", time_ms=5, group="P", topic="T", store_host="h:1",
    message_type=MessageType.COMMIT, transaction_id="0A", transaction_state="COMMIT_MESSAGE", is_from_check=True,
)  # fmt: skip
RECALL = TraceRecord(kind=TraceKind.RECALL, message_id="0A", time_ms=5, group="P", topic="T", is_success=True)


@pytest.mark.parametrize("record", [PUB, BEFORE, AFTER, END, RECALL], ids=lambda record: record.kind.value)
def test_decodes_what_was_encoded(record: TraceRecord) -> None:
    assert list(decode(encode(record) + encode(record))) == [record, record]


def test_text_of_a_send() -> None:
    """The fields in the order of `TraceDataEncoder.encoderFromContextBean`."""
    fields = (
        "Pub", "1700000000000", "DefaultRegion", "P", "T", "0A0000010000", "TagA", "k1 k2", "10.0.0.1:10911", "7", "3",
        "3", "7F", "true",
    )  # fmt: skip
    assert encode(PUB) == "\x01".join(fields) + "\x02"


def test_records_of_old_clients() -> None:
    old = encode(PUB).replace("7F\x01true", "true")
    (record,) = decode(old)
    assert (record.offset_message_id, record.is_success) == ("", True)
    (after,) = decode("SubAfter\x01R\x010A\x014\x01true\x01k\x02")
    assert (after.time_ms, after.group, after.context_code) == (0, "", 0)


def test_separators_in_values_do_not_move_fields() -> None:
    (record,) = decode(encode(TraceRecord(kind=TraceKind.PUB, message_id="0A", tags="a\x01b", keys="c\x02d")))
    assert (record.message_id, record.tags, record.keys) == ("0A", "a b", "c d")


def test_keys_find_the_trace() -> None:
    assert keys_of(PUB) == ["0A0000010000", "k1", "k2"]


@given(st.text(alphabet="\x01\x02PubSbAfte0123", max_size=200))
def test_any_text_is_decoded_or_left_out(text: str) -> None:
    for record in decode(text):
        assert isinstance(record, TraceRecord)
