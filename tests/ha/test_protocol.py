"""The two messages, whole and in pieces, and invalid bytes."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ha.protocol import MAX_TRANSFER_BYTES, ReportReader, TransferReader, report, transfer_head
from sprocket.common.errors import ProtocolError

OFFSETS = st.integers(0, (1 << 63) - 1)


def parts_of(data: bytes, cuts: list[int]) -> list[bytes]:
    places = sorted({0, len(data), *(cut % (len(data) + 1) for cut in cuts)})
    return [data[start:end] for start, end in pairwise(places)]


def test_the_bytes_are_rocketmqs() -> None:
    assert report(0x0102030405060708) == bytes(range(1, 9))
    assert transfer_head(0x0102030405060708, 0x090A0B0C) == bytes(range(1, 13))


@given(st.lists(OFFSETS), st.lists(st.integers(0, 1000)))
def test_reports_come_whole_however_they_are_split(offsets: list[int], cuts: list[int]) -> None:
    reader = ReportReader()
    data = b"".join(map(report, offsets))
    assert [offset for part in parts_of(data, cuts) for offset in reader.feed(part)] == offsets


@given(st.lists(st.tuples(OFFSETS, st.binary(max_size=50))), st.lists(st.integers(0, 1000)))
def test_transfers_come_whole_however_they_are_split(pieces: list[tuple[int, bytes]], cuts: list[int]) -> None:
    reader = TransferReader()
    data = b"".join(transfer_head(offset, len(content)) + content for offset, content in pieces)
    found = [transfer for part in parts_of(data, cuts) for transfer in reader.feed(part)]
    assert [(transfer.from_offset, bytes(transfer.content)) for transfer in found] == pieces
    assert reader.pending_bytes == 0


@given(st.binary(max_size=200), st.lists(st.integers(0, 1000)))
def test_any_bytes_give_messages_or_one_kind_of_error(data: bytes, cuts: list[int]) -> None:
    for reader in (ReportReader(), TransferReader()):
        try:
            for part in parts_of(data, cuts):
                reader.feed(part)
        except ProtocolError:
            pass


@pytest.mark.parametrize("size", [-1, -(1 << 31), MAX_TRANSFER_BYTES + 1, (1 << 31) - 1])
def test_a_size_is_refused_before_anything_is_kept_for_it(size: int) -> None:
    reader = TransferReader()
    with pytest.raises(ProtocolError, match=str(size)):
        reader.feed(transfer_head(0, size))


def test_offsets_below_zero_are_refused() -> None:
    with pytest.raises(ProtocolError):
        ReportReader().feed(report(-1))
    with pytest.raises(ProtocolError):
        TransferReader().feed(transfer_head(-1, 0))


def test_a_large_transfer_in_small_reads_is_kept_once() -> None:
    reader = TransferReader()
    content = bytes(1 << 20)
    data = transfer_head(7, len(content)) + content
    for at in range(0, len(data) - 1000, 1000):
        assert reader.feed(data[at : at + 1000]) == []
        kept = reader._rest
    (transfer,) = reader.feed(data[at + 1000 :])
    assert transfer.content == content
    assert kept is not reader._rest
