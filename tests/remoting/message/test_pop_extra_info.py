"""The texts of popped messages; the expected ones were written by RocketMQ 5.3.3's `ExtraInfoUtil`."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sprocket.common.errors import ProtocolError, RequestError
from sprocket.remoting.message.pop_extra_info import (
    MAX_HANDLE_CHARS,
    PopHandle,
    join_entries,
    message_key,
    message_order_count_entry,
    msg_offsets_entry,
    parse_handle,
    parse_msg_offsets,
    parse_order_counts,
    parse_start_offsets,
    queue_key,
    queue_order_count_entry,
    real_topic,
    retry_kind,
    start_offset_entry,
)

KINDS = {"T-1": "0", "%RETRY%g_1_T-1": "1", "%RETRY%g_1+T-1": "2"}


@pytest.mark.parametrize(("topic", "kind"), KINDS.items())
def test_the_kind_of_a_topic_is_told_by_its_name(topic: str, kind: str) -> None:
    assert retry_kind(topic) == kind
    assert real_topic("T-1", "g_1", kind) == topic


@pytest.mark.parametrize("kind", KINDS.values())
def test_a_handle_reads_as_the_references(kind: str) -> None:
    whole_pop = PopHandle(7, 1700000000000, 60000, 3, kind, "broker-a", 2)
    message = PopHandle(-1, 1700000000000, 60000, 999, kind, "broker-a", 2, 9223372036854775807)
    assert whole_pop.encode() == f"7 1700000000000 60000 3 {kind} broker-a 2"
    assert message.encode() == f"-1 1700000000000 60000 999 {kind} broker-a 2 9223372036854775807"
    assert (whole_pop.is_ordered, message.is_ordered) == (False, True)


LONGS = st.integers(-(1 << 63), (1 << 63) - 1)
INTS = st.integers(-(1 << 31), (1 << 31) - 1)
HANDLES = st.builds(
    PopHandle,
    *(LONGS, LONGS, LONGS, INTS, st.sampled_from(["0", "1", "2"])),
    *(st.text("abc-_.中", min_size=1), INTS, st.none() | LONGS),
)


@given(HANDLES)
def test_a_handle_parses_back(handle: PopHandle) -> None:
    assert parse_handle(handle.encode()) == handle


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "has 1 parts instead of 7 or 8"),
        ("7 1 2 3 0 broker-a", "has 6 parts"),
        ("x 1 2 3 0 b 2 5", "'x' where a number belongs"),
        ("1_0 1 2 3 0 b 2 5", "'1_0' where a number belongs"),
        ("7 1 2 2147483648 0 b 2 5", "beyond 32 bits"),
        ("7 1 2 3 0 b 2 9223372036854775808", "beyond 64 bits"),
        ("7 1 2 3 0 b  5", "'' where a number belongs"),
        ("7 1 2 3 0 " + "b" * MAX_HANDLE_CHARS + " 2 5", "at most 1024"),
    ],
)
def test_a_bad_handle_is_refused_by_its_fault(text: str, complaint: str) -> None:
    with pytest.raises(RequestError, match=complaint):
        parse_handle(text)


@given(st.text(max_size=60) | st.text("0123 -+;", max_size=40))
def test_no_text_does_more_than_be_refused(text: str) -> None:
    for parse, error in (
        (parse_handle, RequestError),
        (parse_start_offsets, ProtocolError),
        (parse_msg_offsets, ProtocolError),
        (parse_order_counts, ProtocolError),
    ):
        with contextlib.suppress(error):
            parse(text)


def test_an_unknown_kind_is_refused() -> None:
    with pytest.raises(RequestError, match="none of 0, 1, 2"):
        real_topic("T", "g", "3")


def test_the_texts_of_an_answer_read_as_the_references() -> None:
    starts = join_entries([start_offset_entry(kind, 2, 100) for kind in KINDS.values()])
    offsets = join_entries([msg_offsets_entry(kind, 2, [100, 101, 105]) for kind in KINDS.values()])
    counts = join_entries(
        [
            entry
            for kind in KINDS.values()
            for entry in (queue_order_count_entry(kind, 2, 4), message_order_count_entry(kind, 2, 105, 1))
        ]
    )
    assert starts == "0 2 100;1 2 100;2 2 100"
    assert offsets == "0 2 100,101,105;1 2 100,101,105;2 2 100,101,105"
    assert counts == "0 2 4;0 qo2%105 1;1 2 4;1 qo2%105 1;2 2 4;2 qo2%105 1"
    assert parse_start_offsets(starts) == {"0@2": 100, "1@2": 100, "2@2": 100}
    assert parse_msg_offsets(offsets)[queue_key("2", 2)] == [100, 101, 105]
    assert parse_order_counts(counts) == {
        key: value
        for kind in KINDS.values()
        for key, value in ((queue_key(kind, 2), 4), (message_key(kind, 2, 105), 1))
    }


@pytest.mark.parametrize("text", [None, ""])
def test_an_answer_without_texts_holds_nothing(text: str | None) -> None:
    assert [parse_start_offsets(text), parse_msg_offsets(text), parse_order_counts(text)] == [{}, {}, {}]


@pytest.mark.parametrize(
    ("text", "complaint"),
    [("0 1", "2 parts instead of 3"), ("0 1 2;0 1 3", "names 0@1 twice"), ("0 1 x", "where a number belongs")],
)
def test_bad_texts_of_an_answer_are_refused_by_their_fault(text: str, complaint: str) -> None:
    with pytest.raises(ProtocolError, match=complaint):
        parse_start_offsets(text)
