"""Bytes of answers to SendMessage say the same as protobuf's."""

from hypothesis import given
from hypothesis import strategies as st

from proxy.convert.send_answer import SendResult, encoded_answer
from proxy.status import OK, joint_status, status
from sprocket.grpc_wire import messaging_pb2 as wire

_TEXTS = st.text(st.characters(codec="utf-8"), max_size=300)
_STATUSES = st.one_of(
    st.just(OK), st.builds(status, st.sampled_from([wire.OK, wire.TOO_MANY_REQUESTS, wire.HA_NOT_AVAILABLE]), _TEXTS)
)
_OFFSETS = st.one_of(st.integers(0, 5000), st.integers(-(1 << 63), (1 << 63) - 1))


@given(st.lists(st.builds(SendResult, _STATUSES, _TEXTS, _TEXTS, _OFFSETS, _TEXTS), max_size=4))
def test_bytes_are_those_of_protobuf(results: list[SendResult]) -> None:
    codes = {result.status.code for result in results}
    entries = [
        wire.SendResultEntry(
            status=one.status, message_id=one.message_id, transaction_id=one.transaction_id, offset=one.offset,
            recall_handle=one.recall_handle,
        )
        for one in results
    ]  # fmt: skip
    expected = wire.SendMessageResponse(status=joint_status(codes, "send status is empty"), entries=entries)
    encoded = encoded_answer(results)
    assert wire.SendMessageResponse.FromString(encoded) == expected
    assert encoded == expected.SerializeToString()
