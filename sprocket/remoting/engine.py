"""Compiled decoders of headers, made from the structs that declare them, and encoders, made from templates.

What they leave over, `sprocket.remoting.routes` and `frames` handle; `tests/remoting/test_twins.py` compares both.
"""

import re
import struct
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, Final

import msgspec

from sprocket.engine.choice import native
from sprocket.remoting.codec.codec_binary import LONG_CODES
from sprocket.remoting.command import Request
from sprocket.remoting.headers.base import Header, Int, Long

_framing: Final = native("sprocket.remoting.frames_native")

# What `Request.language` holds for a ROCKETMQ header.
_LANGUAGES: Final = tuple(map(str, range(256)))
_INTEGERS: Final = tuple(msgspec.inspect.type_info(kind) for kind in (Int, Long))


def header_decoder(code: int, header: type[Header], engine: Any = _framing) -> Any:
    """Return the compiled decoder of the requests of `code`, from the module `sprocket.remoting.frames_native`.

    None with pure Python, if the header has a field that only the Python code decodes, or if a ROCKETMQ header names
    the code differently.
    """
    if engine is None:
        return None
    fields = header_fields(code, header, engine)
    return None if fields is None else engine.HeaderDecoder(Request, header, code, fields, _LANGUAGES)


@cache  # every server has several tables of its routes
def header_fields(code: int, header: type[Header], engine: Any = _framing) -> tuple[Any, ...] | None:
    """Return the fields of a header as compiled readers take them; None if Python must decode it.

    Each is a tuple: attribute, name on the wire, kind, whether it may be null, a tuple of its default.
    """
    short = (code & 0xFFFF) - ((code & 0x8000) << 1)
    if LONG_CODES.get(short, short) != code:
        return None
    fields = []
    declared = msgspec.inspect.type_info(header)
    assert isinstance(declared, msgspec.inspect.StructType)
    for field in declared.fields:
        kind, may_be_null = _kind(engine, field.type)
        if kind is None or field.default_factory is not msgspec.NODEFAULT:
            return None
        default = () if field.required else (field.default,)
        fields.append((field.name, field.encode_name.encode(), kind, may_be_null, default))
    return tuple(fields)


def _kind(engine: Any, declared: msgspec.inspect.Type) -> tuple[int | None, bool]:
    """Return the kind of a field as the compiled decoder names it, and whether the field may be null."""
    kinds = zip((*_INTEGERS, msgspec.inspect.BoolType(), msgspec.inspect.StrType()),
                (engine.INT, engine.LONG, engine.BOOL, engine.TEXT), strict=True)  # fmt: skip
    may_be_null = False
    if isinstance(declared, msgspec.inspect.UnionType):
        others = [kind for kind in declared.types if not isinstance(kind, msgspec.inspect.NoneType)]
        may_be_null = len(others) < len(declared.types)
        if len(others) != 1:
            return None, may_be_null
        declared = others[0]
    return next((kind for known, kind in kinds if known == declared), None), may_be_null


# The forms of values in a template, and those that the compiled encoder knows.
_VALUE: Final = re.compile(rb"%%|%b|%d|%016X")
_FORMAT: Final = re.compile(r"([^%]*)(%b|%d|%016X)")


def response_encoder(
    json_format: bytes,
    formats: Mapping[str, str],
    keys: Sequence[bytes],
    before_opaque: tuple[int, int, int],
    after_opaque: tuple[int, int, bytes],
    constant: bytes,
    engine: Any = _framing,
) -> Any:
    """Return the compiled encoder of a `ResponseTemplate`, from the module `sprocket.remoting.frames_native`.

    `before_opaque` are code, language and version, `after_opaque` flag, length of the remark and remark; `keys` and
    `constant` are encoded as in a ROCKETMQ header.  None with pure Python, or if a format is unusual.
    """
    matches = [_FORMAT.fullmatch(value) for value in formats.values()]
    if engine is None or not all(matches):
        return None
    kinds = {"%b": engine.BYTES, "%d": engine.DECIMAL, "%016X": engine.HEX}
    texts = _texts(json_format)
    if len(texts) != len(formats) + 2:
        return None
    values = []
    for match, key, text in zip(matches, keys, texts, strict=False):
        assert match is not None
        literal = match[1].encode()
        values.append((text.removesuffix(literal), key, literal, kinds[match[2]]))
    begin = struct.pack(">hBh", *before_opaque)
    middle = struct.pack(">ii", *after_opaque[:2]) + after_opaque[2]
    return engine.ResponseEncoder(tuple(values), *texts[-2:], begin, middle, constant)


def _texts(json_format: bytes) -> list[bytes]:
    """Return what stands before, between and after the values of a %-format."""
    texts, at = [b""], 0
    for match in _VALUE.finditer(json_format):
        texts[-1] += json_format[at : match.start()]
        at = match.end()
        if match[0] == b"%%":
            texts[-1] += b"%"
        else:
            texts.append(b"")
    texts[-1] += json_format[at:]
    return texts
