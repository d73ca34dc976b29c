"""Bytes of answers to SendMessage and AckMessage are those of protobuf."""

from hypothesis import given
from hypothesis import strategies as st

from proxy.convert.answers import AckResult, SendResult, encoded_acks, encoded_sends
from proxy.status import OK, joint_status, status
from sprocket.grpc_wire import messaging_pb2 as wire

_TEXTS = st.text(st.characters(codec="utf-8"), max_size=300)
_STATUSES = st.one_of(
    st.just(OK), st.builds(status, st.sampled_from([wire.OK, wire.TOO_MANY_REQUESTS, wire.HA_NOT_AVAILABLE]), _TEXTS)
)
_OFFSETS = st.one_of(st.integers(0, 5000), st.integers(-(1 << 63), (1 << 63) - 1))


@given(st.lists(st.builds(SendResult, _STATUSES, _TEXTS, _TEXTS, _OFFSETS, _TEXTS), max_size=4))
def test_answers_to_sends(results: list[SendResult]) -> None:
    codes = {result.status.code for result in results}
    entries = [
        wire.SendResultEntry(
            status=one.status, message_id=one.message_id, transaction_id=one.transaction_id, offset=one.offset,
            recall_handle=one.recall_handle,
        )
        for one in results
    ]  # fmt: skip
    expected = wire.SendMessageResponse(status=joint_status(codes, "send status is empty"), entries=entries)
    encoded = encoded_sends(results)
    assert wire.SendMessageResponse.FromString(encoded) == expected
    assert encoded == expected.SerializeToString()


@given(st.lists(st.builds(AckResult, _STATUSES, _TEXTS, _TEXTS), max_size=4))
def test_answers_to_acknowledgements(results: list[AckResult]) -> None:
    codes = {result.status.code for result in results}
    entries = [
        wire.AckMessageResultEntry(status=one.status, message_id=one.message_id, receipt_handle=one.receipt_handle)
        for one in results
    ]
    expected = wire.AckMessageResponse(status=joint_status(codes, "ack message result is empty"), entries=entries)
    encoded = encoded_acks(results)
    assert wire.AckMessageResponse.FromString(encoded) == expected
    assert encoded == expected.SerializeToString()
