"""ROCKETMQ headers decoded straight into structs: always what the general decoder makes of them, or nothing."""

import msgspec
from hypothesis import example, given
from hypothesis import strategies as st

from sprocket.common.errors import ProtocolError
from sprocket.remoting.codec import codec_binary
from sprocket.remoting.codec.typed_binary import BinaryDecoder
from sprocket.remoting.command import Request
from sprocket.remoting.framing import ROCKETMQ
from sprocket.remoting.headers.base import Header
from sprocket.remoting.headers.pull import PullMessageRequestHeader
from sprocket.remoting.headers.send import SendMessageRequestHeaderV2

CODE = 310
SEND = {
    "a": "group", "b": "Topic", "c": "TBW102", "d": "4", "e": "3", "f": "0", "g": "1700000000000", "h": "0",
    "i": "KEYS\x01ü\x02", "j": "0", "k": "false", "l": "16", "m": "false", "n": "broker-a",
}  # fmt: skip
PULL = {
    "consumerGroup": "g", "topic": "Topic", "queueId": "3", "queueOffset": "99", "maxMsgNums": "32", "sysFlag": "4",
    "commitOffset": "0", "suspendTimeoutMillis": "0", "subscription": "*", "subVersion": "0",
}  # fmt: skip
# Texts that a number, a boolean or an optional field may take for its own, and those that it must not.
values = st.one_of(
    st.integers(-(2**65), 2**65).map(str),
    st.sampled_from(["true", "false", "null", "None", "TRUE", "1e3", "1.0", " 7", "+7", "1_0", "٣", "-0", "007"]),
    st.text(max_size=12),
)
fields_of_a_send = st.fixed_dictionaries(
    {key: st.one_of(st.just(value), values) for key, value in SEND.items()},
    optional={"z": values, "ü": values, "k" * 31: values, "k" * 32: values},
)


def encoded(fields: dict[str, str], opaque: int = 7, flag: int = 0) -> bytes:
    return codec_binary.encode_header(CODE, opaque, flag, None, fields)


def generally(header: bytes, header_type: type[Header]) -> Request[Header] | None:
    """What the general decoder makes of a header; None where it refuses it."""
    try:
        binary = codec_binary.decode_header(header)
        fields = msgspec.convert(binary.ext_fields, header_type, strict=False)
    except (ProtocolError, msgspec.ValidationError):
        return None
    return Request(
        code=binary.code, header=fields, flag=binary.flag, language=str(binary.language), opaque=binary.opaque,
        remark=binary.remark, version=binary.version, body=b"body", channel=None, serialization=ROCKETMQ,
    )  # fmt: skip


def check(decoder: BinaryDecoder, header: bytes, header_type: type[Header]) -> bool:
    """Whether the decoder takes `header`; if so, it must make of it what the general one does."""
    request = decoder.request(header, b"body", None)
    if request is not None:
        assert request == generally(header, header_type)
    return request is not None


def test_the_usual_headers_are_taken() -> None:
    assert check(BinaryDecoder(SendMessageRequestHeaderV2), encoded(SEND), SendMessageRequestHeaderV2)
    assert check(BinaryDecoder(PullMessageRequestHeader), encoded(PULL), PullMessageRequestHeader)
    # A single entry, and all the fields of a struct absent but the required ones.
    required = {key: value for key, value in SEND.items() if key <= "h"}
    assert check(BinaryDecoder(SendMessageRequestHeaderV2), encoded(required), SendMessageRequestHeaderV2)


def test_what_only_the_general_decoder_may_judge_is_left_to_it() -> None:
    unusual = [
        encoded({**SEND, "z": "unknown"}),
        encoded({**SEND, "n": ""}),
        encoded({key: value for key, value in SEND.items() if key != "a"}),
        encoded({**SEND, "e": str(2**31)}),
        encoded({**SEND, "e": "three"}),
        encoded(SEND, flag=1),
        encoded(SEND) + b"\0",
        encoded(SEND)[:-1],
        encoded(SEND).replace(b"Topic", b"Top\xff\xff"),
        encoded({**SEND, "i": "x" * 2000}),
        codec_binary.encode_header(CODE, 7, 0, "remark", SEND),
        encoded({}),
        b"",
    ]
    for header in unusual:
        fresh = BinaryDecoder(SendMessageRequestHeaderV2)
        assert fresh.request(header, b"", None) is None
        # Nor does one take it that has learned the usual form.
        assert check(fresh, encoded(SEND), SendMessageRequestHeaderV2) or True
        assert not check(fresh, header, SendMessageRequestHeaderV2)


@given(fields_of_a_send, fields_of_a_send, st.integers(-(2**31), 2**31 - 1))
def test_any_values_are_decoded_as_by_the_general_decoder(
    first: dict[str, str], second: dict[str, str], opaque: int
) -> None:
    decoder = BinaryDecoder(SendMessageRequestHeaderV2)
    for fields in (first, second, {**second, "a": first["a"]}, first):
        check(decoder, encoded(fields, opaque), SendMessageRequestHeaderV2)


@given(st.data(), st.sampled_from([SEND, PULL]))
@example(None, SEND)
def test_a_header_like_the_one_learned_is_no_mistake(data: st.DataObject | None, fields: dict[str, str]) -> None:
    header_type = SendMessageRequestHeaderV2 if fields is SEND else PullMessageRequestHeader
    decoder = BinaryDecoder(header_type)
    header = bytearray(encoded(fields))
    assert check(decoder, bytes(header), header_type)
    if data is None:
        # Every byte, one at a time: lengths, keys, values and the fixed part.
        for index in range(len(header)):
            for changed in (0, header[index] ^ 1, header[index] ^ 0x80):
                check(decoder, bytes(header[:index]) + bytes([changed]) + bytes(header[index + 1 :]), header_type)
        return
    for _ in range(data.draw(st.integers(1, 4))):
        header[data.draw(st.integers(0, len(header) - 1))] = data.draw(st.integers(0, 255))
    check(decoder, bytes(header), header_type)
    check(BinaryDecoder(header_type), bytes(header), header_type)


def test_headers_of_ever_new_lengths_are_decoded() -> None:
    decoder = BinaryDecoder(SendMessageRequestHeaderV2)
    taken = [check(decoder, encoded({**SEND, "i": "x" * size}), SendMessageRequestHeaderV2) for size in range(1, 700)]
    assert taken[0]
    # A repeated length is accepted in the end, also in another form than before.
    other = {**SEND, "a": "grou", "b": "Topic2"}
    taken = [check(decoder, encoded(other), SendMessageRequestHeaderV2) for _ in range(40)]
    assert all(taken[20:])
