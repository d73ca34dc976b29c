"""The JSON serialization of headers.

Source: RocketMQ 5.3.3, `RemotingCommand`, `RemotingSerializable` (fastjson).  A header is one object:
``code``, ``language``, ``version``, ``opaque``, ``flag``, ``remark`` and ``extFields``, a map of strings.
"""

import re
from collections.abc import Mapping
from typing import Any, cast

import msgspec

from sprocket.common import limits
from sprocket.common.errors import ProtocolError
from sprocket.remoting.codec.mended_json import mended
from sprocket.remoting.command import FLAG_RESPONSE, LANGUAGE, VERSION, ReceivedResponse
from sprocket.remoting.headers.base import Int


class Envelope(msgspec.Struct):
    """Header whose extFields are still JSON text: decoded before the code is known."""

    code: int
    # Null means the same as an absent member.
    opaque: int | None = 0
    flag: int | None = 0
    version: int | None = 0
    # Some clients send the number of their language, as a ROCKETMQ header has it.
    language: str | int | None = None
    remark: str | None = None
    ext_fields: msgspec.Raw = msgspec.field(name="extFields", default=msgspec.Raw(b"null"))


class _WrittenResponse(ReceivedResponse, kw_only=True):
    """Header of a response, whose flag must say so."""

    flag: Int = 0


_envelope_decoder = msgspec.json.Decoder(Envelope, strict=False)
_response_decoder = msgspec.json.Decoder(_WrittenResponse, strict=False)
_ext_decoder: msgspec.json.Decoder[dict[str, str | None] | None] = msgspec.json.Decoder(
    dict[str, str | None] | None, strict=False
)
_loose_ext_decoder: msgspec.json.Decoder[dict[str, Any]] = msgspec.json.Decoder(dict[str, Any])
_encode = msgspec.json.Encoder().encode

_INT_MIN, _INT_MAX = -(2**31), 2**31 - 1
_MAX_FIELDS = limits.MAX_EXT_FIELDS
# Members that tell where a refusal goes.  In a text, a backslash stands before the second quotation mark.
_NUMBER = re.compile(rb'"(code|flag|opaque)"\s*+:\s*+"?(-?[0-9]{1,18})(?=[",}\s])')


def decode_header(header: bytes) -> tuple[Envelope, dict[str, str]]:
    """Return a header, and its extFields as strings.  Raises ProtocolError."""
    try:
        return _decode_strictly(header)
    except ProtocolError:
        allowed = mended(header)
        if allowed is None:
            raise
    return _decode_strictly(allowed)


def _decode_strictly(header: bytes) -> tuple[Envelope, dict[str, str]]:
    envelope = decode_envelope(header)
    return envelope, decode_ext_fields(envelope.ext_fields)


def address_of(header: bytes) -> tuple[int, int, int] | None:
    """Return code, opaque and flag of a header that `decode_header` refuses; None if it has no opaque."""
    found = {name: int(digits) for name, digits in _NUMBER.findall(header)}
    return (found.get(b"code", 0), found[b"opaque"], found.get(b"flag", 0)) if b"opaque" in found else None


def decode_response(header: bytes) -> ReceivedResponse | None:
    """Return the usual response with `header`, without its body; None for all else, which `decode_header` reads."""
    try:
        response = _response_decoder.decode(header)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return None
    return response if response.flag & FLAG_RESPONSE and len(response.ext_fields) <= _MAX_FIELDS else None


def decode_envelope(header: bytes) -> Envelope:
    """Decode everything but extFields.  Raises ProtocolError."""
    try:
        envelope = _envelope_decoder.decode(header)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise ProtocolError("json", str(error)) from None
    for number in (envelope.code, envelope.opaque, envelope.flag, envelope.version):
        if number is not None and not _INT_MIN <= number <= _INT_MAX:
            raise ProtocolError("json", f"{number} does not fit 32 bits")
    return envelope


def decode_ext_fields(raw: bytes) -> dict[str, str]:
    """Return extFields as strings.  Numbers and booleans, which some clients write unquoted, become their text."""
    try:
        fields = _ext_decoder.decode(raw)
        return _texts(fields or {})
    except msgspec.ValidationError:
        return _decode_loose(raw)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise ProtocolError("json", str(error)) from None


def _texts(fields: dict[str, str | None]) -> dict[str, str]:
    """Return `fields` without null values, which mean the same as absent fields."""
    _check_count(len(fields))
    if None in fields.values():
        return {name: value for name, value in fields.items() if value is not None}
    return cast("dict[str, str]", fields)


def _decode_loose(raw: bytes) -> dict[str, str]:
    try:
        fields = _loose_ext_decoder.decode(raw)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise ProtocolError("json", f"extFields: {error}") from None
    _check_count(len(fields))
    texts = {}
    for name, value in fields.items():
        if isinstance(value, bool):
            texts[name] = "true" if value else "false"
        elif isinstance(value, int | float | str):
            texts[name] = str(value)
        elif value is not None:
            raise ProtocolError("json", f"extFields.{name} is neither text, number nor boolean")
    return texts


def _check_count(count: int) -> None:
    if count > _MAX_FIELDS:
        raise ProtocolError("ext_fields", f"{count} entries, at most {_MAX_FIELDS}")


def encode_header(code: int, opaque: int, flag: int, remark: str | None, ext_fields: Mapping[str, str] | None) -> bytes:
    """Return a header as the reference writes it, keys in its order."""
    header: dict[str, object] = {"code": code}
    if ext_fields:
        header["extFields"] = ext_fields
    header["flag"] = flag
    header["language"] = LANGUAGE
    header["opaque"] = opaque
    if remark is not None:
        header["remark"] = remark
    header["serializeTypeCurrentRPC"] = "JSON"
    header["version"] = VERSION
    return _encode(header)
