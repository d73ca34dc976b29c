"""Headers in both serializations: what peers write is read, what we write they read."""

import json
import struct

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sprocket.common import limits
from sprocket.common.errors import ProtocolError
from sprocket.remoting.codec import codec_binary, codec_json
from sprocket.remoting.codes import RequestCode
from sprocket.remoting.command import VERSION, ReceivedResponse, Request, Response
from sprocket.remoting.frames import ResponseTemplate, encode_request, encode_response
from sprocket.remoting.framing import JSON, ROCKETMQ, FrameDecoder
from sprocket.remoting.headers.base import to_ext_fields
from sprocket.remoting.headers.client import UnregisterClientRequestHeader
from sprocket.remoting.headers.send import SendMessageRequestHeaderV2
from sprocket.remoting.routes import Action, NoHeader, Resource, Route, RouteTable, UnroutableRequest

# As rocketmq-client 5.3.3 writes it.
JAVA_SEND = (
    b'{"code":310,"extFields":{"a":"group","b":"Topic","c":"TBW102","d":"4","e":"3","f":"0","g":"1700000000000",'
    b'"h":"0","i":"TAGS\\u0001A\\u0002","j":"0","k":"false","l":"16","m":"false","n":"broker-a"},"flag":0,'
    b'"language":"JAVA","opaque":7,"serializeTypeCurrentRPC":"JSON","version":479}'
)


def never(_: Request[object]) -> Response:
    raise AssertionError


def table() -> RouteTable:
    return RouteTable(
        [
            Route(RequestCode.SEND_MESSAGE_V2, SendMessageRequestHeaderV2, never, Resource.TOPIC, Action.PUB),
            Route(RequestCode.UNREGISTER_CLIENT, UnregisterClientRequestHeader, never, Resource.NONE, Action.NONE),
        ]
    )


def check_send(request: Request[SendMessageRequestHeaderV2]) -> None:
    header = request.header
    assert (request.code, request.opaque, request.body) == (310, 7, b"body")
    assert request.version in (479, VERSION)
    assert (header.producer_group, header.topic, header.queue_id, header.born_timestamp) == (
        "group",
        "Topic",
        3,
        1700000000000,
    )
    assert (header.properties, header.unit_mode, header.max_reconsume_times) == ("TAGS\x01A\x02", False, 16)


def test_json_of_the_java_client() -> None:
    _, request = table().decode((JSON, JAVA_SEND, b"body"))  # type: ignore[misc]
    check_send(request)


@pytest.mark.parametrize("separators", [(", ", ": "), (",", ":")])
def test_json_with_keys_in_another_order_and_unquoted_numbers(separators: tuple[str, str]) -> None:
    header = json.loads(JAVA_SEND)
    header["extFields"]["e"] = 3
    header["extFields"]["k"] = False
    header["extFields"]["unknown"] = None
    reordered = {key: header[key] for key in sorted(header, reverse=True)}
    _, request = table().decode((JSON, json.dumps(reordered, separators=separators).encode(), b"body"))  # type: ignore[misc]
    check_send(request)


def test_binary() -> None:
    ext_fields = json.loads(JAVA_SEND)["extFields"]
    header = bytearray(codec_binary.encode_header(310, 7, 0, None, ext_fields))
    _, request = table().decode((ROCKETMQ, bytes(header), b"body"))  # type: ignore[misc]
    check_send(request)
    assert request.serialization == ROCKETMQ


def test_a_second_code_in_the_header_does_not_mislead_the_fast_path() -> None:
    header = JAVA_SEND[:-1] + b',"code":35}'
    with pytest.raises(UnroutableRequest, match="UNREGISTER_CLIENT"):
        table().decode((JSON, header, b""))


def test_a_required_field_that_is_missing_is_named() -> None:
    for header in (b'{"code":310,"extFields":{"a":"group"},"opaque":5}', b'{"code":310,"opaque":5}'):
        with pytest.raises(UnroutableRequest, match="SEND_MESSAGE_V2") as caught:
            table().decode((JSON, header, b""))
        assert caught.value.request.opaque == 5


def test_a_number_beyond_its_java_type_is_refused_by_field() -> None:
    header = JAVA_SEND.replace(b'"e":"3"', b'"e":"3000000000"')
    with pytest.raises(UnroutableRequest, match=r"SEND_MESSAGE_V2.*\$\.e"):
        table().decode((JSON, header, b""))


def test_an_unknown_code_is_answered_by_name() -> None:
    with pytest.raises(UnroutableRequest, match=r"200050 \(POP_MESSAGE\) not supported"):
        table().decode((JSON, b'{"code":200050,"opaque":1}', b""))
    with pytest.raises(UnroutableRequest, match="99999 not supported"):
        table().decode((JSON, b'{"code":99999,"opaque":1}', b""))


@pytest.mark.parametrize(
    "header",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b'{"code":310',
        b'{"code":99999999999999999999}',
        b'{"code":310,"opaque":1.5}',
        b'{"code":310,"extFields":[1]}',
        b'{"code":310,"extFields":{"a":{}}}',
        b'{"code":310,"extFields":"x"}',
        b"\xff\xfe",
        b'{"code":310,"extFields":' + b"[" * 5000,
    ],
)
def test_broken_json_without_an_opaque_is_a_protocol_error(header: bytes) -> None:
    with pytest.raises(ProtocolError):
        table().decode((JSON, header, b""))


def test_too_many_ext_fields_are_refused_in_both() -> None:
    many = {str(number): "1" for number in range(limits.MAX_EXT_FIELDS + 1)}
    with pytest.raises(UnroutableRequest, match="ext_fields"):
        table().decode((JSON, codec_json.encode_header(999, 1, 0, None, many), b""))
    with pytest.raises(UnroutableRequest, match="ext_fields"):
        table().decode((ROCKETMQ, codec_binary.encode_header(999, 1, 0, None, many), b""))


@pytest.mark.parametrize(("at", "value"), [(13, -1), (13, 2**31 - 1), (17, -1), (17, 2**31 - 1), (17, 5)], ids=str)
def test_binary_lengths_that_leave_the_header(at: int, value: int) -> None:
    header = bytearray(codec_binary.encode_header(1, 1, 0, None, {"a": "b"}))
    struct.pack_into(">i", header, at, value)
    with pytest.raises(ProtocolError):
        codec_binary.decode_header(bytes(header))


text = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20)


@given(
    st.integers(0, 32767),
    st.integers(0, 2**31 - 1),
    st.none() | text,
    st.dictionaries(text, text, max_size=8),
)
def test_round_trip(code: int, opaque: int, remark: str | None, fields: dict[str, str]) -> None:
    binary = codec_binary.decode_header(codec_binary.encode_header(code, opaque, 1, remark, fields))
    assert (binary.code, binary.opaque, binary.flag, binary.remark, binary.ext_fields) == (
        code,
        opaque,
        1,
        remark,
        fields,
    )
    encoded = codec_json.encode_header(code, opaque, 1, remark, fields)
    envelope = codec_json.decode_envelope(encoded)
    assert (envelope.code, envelope.opaque, envelope.remark) == (code, opaque, remark)
    assert codec_json.decode_ext_fields(envelope.ext_fields) == fields


@pytest.mark.parametrize("serialization", [JSON, ROCKETMQ])
@pytest.mark.parametrize("constants", [{}, {"MSG_REGION": "100%", "TRACE_ON": "true"}])
def test_a_template_says_the_same_as_the_general_encoder(serialization: int, constants: dict[str, str]) -> None:
    template = ResponseTemplate(0, ("msgId", "queueId"), constants)
    (fast,) = FrameDecoder().feed(template.frame(serialization, 9, (b"ABC", b"3"), 4) + b"body")
    response = Response(header={"msgId": "ABC", "queueId": "3"} | constants, body=b"body")
    (general,) = FrameDecoder().feed(b"".join(encode_response(response, 9, serialization)))
    empty = RouteTable([])
    assert empty.decode(fast) == empty.decode(general)


@pytest.mark.parametrize("serialization", [JSON, ROCKETMQ])
def test_a_request_that_we_encode_is_decoded(serialization: int) -> None:
    header = UnregisterClientRequestHeader(client_id="c@1", consumer_group="g")
    (frame,) = FrameDecoder().feed(encode_request(35, 3, header, 2, serialization=serialization) + b"hi")
    _, request = table().decode(frame)  # type: ignore[misc]
    assert request.header == header
    assert request.body == b"hi"


@pytest.mark.parametrize("fields", [{}, {"consumerGroup": "g", "topic": "t", "queueId": "0"}, {"topic": ""}])
def test_a_code_that_a_binary_header_cuts_is_known_by_its_low_bits(fields: dict[str, str]) -> None:
    """With ROCKETMQ serialization the Java client sends 3447 for 200055."""
    route = Route(RequestCode.POLLING_INFO, NoHeader, never, Resource.GROUP, Action.GET)
    header = codec_binary.encode_header(200055, 7, 0, None, fields)
    assert header[:2] == (3447).to_bytes(2, "big")
    entry, request = RouteTable([route]).decode((ROCKETMQ, header, b""))  # type: ignore[misc]
    assert (entry.code, request.code, request.opaque) == (200055, 200055, 7)
    with pytest.raises(UnroutableRequest, match="POLLING_INFO"):
        RouteTable([]).decode((ROCKETMQ, header, b""))
    answer = codec_binary.encode_header(200055, 7, 1, None, fields)
    response = RouteTable([route]).decode((ROCKETMQ, answer, b""))
    assert isinstance(response, ReceivedResponse)
    assert response.code == 3447, "of a response nothing is known"


def test_ext_fields_are_text_and_leave_out_what_is_absent() -> None:
    header = msgspec.convert(json.loads(JAVA_SEND)["extFields"], SendMessageRequestHeaderV2, strict=False)
    header.batch = None
    fields = to_ext_fields(header)
    assert fields["k"] == "false"
    assert fields["g"] == "1700000000000"
    assert "m" not in fields
