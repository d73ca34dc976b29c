"""The decoder of usual responses returns what the general one does, or nothing."""

import random

from sprocket.common.errors import ProtocolError
from sprocket.remoting.codec.codec_json import decode_response, encode_header
from sprocket.remoting.command import ReceivedResponse
from sprocket.remoting.framing import JSON
from sprocket.remoting.routes import open_frame

_FIELDS = {"queueId": "3", "queueOffset": "12", "msgId": "7F0000012A9F0000", "transactionId": 'Ü\n"x'}
_USUAL = encode_header(0, 77, 1, "remark\x01", _FIELDS)
_OTHERS = (
    b"{}",
    b"[]",
    b"null",
    b'{"code":0}',
    b'{"code":"0","flag":"1","opaque":"9"}',
    b'{"code":0,"flag":1,"extFields":null}',
    b'{"code":0,"flag":1,"extFields":{"a":null,"b":1,"c":true}}',
    b'{"code":0,"flag":1,"language":5}',
    b'{"code":0,"flag":1,"opaque":4294967296}',
    b'{"code":0,"flag":1,"remark":7}',
    b'{"code":0,"flag":3,"opaque":-1,"#body":"QUJD"}',
    b'{"flag":1}',
    encode_header(310, 1, 0, None, {"a": "g"}),
    encode_header(1, 2, 1, None, None),
)


def check(header: bytes) -> bool:
    decoded = decode_response(header)
    if decoded is None:
        return False
    decoded.body = b"B"
    try:
        opened = open_frame((JSON, header, b"B"))
    except ProtocolError as error:
        raise AssertionError(f"{header!r} is no header, but was decoded: {error}") from None
    assert isinstance(opened, ReceivedResponse)
    found = [(one.code, one.opaque, one.version, one.remark, one.ext_fields, one.body) for one in (decoded, opened)]
    assert found[0] == found[1]
    return True


def test_a_response_of_a_broker_is_decoded() -> None:
    assert check(_USUAL)


def test_damaged_and_unusual_headers_are_decoded_alike_or_left_over() -> None:
    randoms = random.Random(2)
    decoded = sum(map(check, _OTHERS))
    for cut in range(len(_USUAL)):
        decoded += check(_USUAL[:cut])
    for _ in range(3000):
        damaged = bytearray(_USUAL)
        for _ in range(randoms.randrange(1, 4)):
            damaged[randoms.randrange(len(damaged))] = randoms.randrange(256)
        decoded += check(bytes(damaged))
    assert 100 < decoded < 3000
