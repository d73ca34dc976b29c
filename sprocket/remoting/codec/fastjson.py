"""The JSON dialect of bodies: what fastjson writes and reads beyond the standard.

Source: RocketMQ 5.3.3, `RemotingSerializable` with fastjson 1.2.  Map keys that are numbers or objects
stand without quotes: ``{0:"10.0.0.1:10911"}``, ``{{"brokerName":"a","queueId":0,"topic":"t"}:{...}}``.
Fields that are null are left out.
"""

from collections.abc import Callable, Generator, Iterable, Mapping
from functools import cache
from itertools import islice
from typing import Any, Final, TypeVar

import msgspec

from sprocket.common.errors import ProtocolError
from sprocket.remoting.codec.bare_keys import quoted
from sprocket.remoting.codec.body_limits import BodyLimit
from sprocket.remoting.codec.java_text import java_text
from sprocket.remoting.codec.mended_json import mended

T = TypeVar("T")

# Members or elements that are encoded in one step.
STEP_ITEMS: Final = 64
_decode_any = msgspec.json.Decoder().decode
_encode_leaf = msgspec.json.Encoder().encode


def dumps(value: object, *, standard: bool = False) -> bytes:
    """Return `value` (structs, mappings, sequences, scalars) as fastjson writes it.

    With `standard` every key is quoted, as newer clients ask for; a struct as a key is then its JSON text.
    """
    pieces: list[bytes] = []
    _dump(value, pieces, standard)
    return b"".join(pieces)


def in_steps(
    items: Iterable[T],
    pack: Callable[[list[T]], object],
    encode: Callable[[object], bytes] = dumps,
    step_items: int = STEP_ITEMS,
) -> Generator[None, None, Any]:
    """Encode `items` a few at a time, and return their text as a value for `dumps`.

    `pack` makes one value of some items: `dict` of the pairs of a mapping, `list` of elements.  Items are taken when
    they are encoded, and none is kept, so that a large table never exists as a whole.
    """
    iterator, empty = iter(items), dumps(pack([]))
    pieces = [empty[:1]]
    while some := list(islice(iterator, step_items)):
        text = encode(pack(some))[1:-1]
        if text:
            pieces += (b",", text) if len(pieces) > 1 else (text,)
        if len(some) < step_items:
            break
        yield
    pieces.append(empty[1:])
    return msgspec.Raw(b"".join(pieces))


@cache  # asking msgspec takes longer than writing the struct
def _fields(struct: type[msgspec.Struct]) -> tuple[tuple[str, str], ...]:
    return tuple((field.name, field.encode_name) for field in msgspec.structs.fields(struct))


def _dump(value: object, pieces: list[bytes], standard: bool) -> None:
    if isinstance(value, msgspec.Struct):
        _dump_members([(name, getattr(value, field)) for field, name in _fields(type(value))], pieces, standard)
    elif isinstance(value, Mapping):
        _dump_members(value.items(), pieces, standard)
    elif isinstance(value, list | tuple | set | frozenset):
        if all(type(item) is str for item in value):  # ten times faster, for lists of topics
            pieces.append(_encode_leaf(value))
            return
        pieces.append(b"[")
        for index, item in enumerate(value):
            if index:
                pieces.append(b",")
            _dump(item, pieces, standard)
        pieces.append(b"]")
    elif isinstance(value, msgspec.Raw):
        pieces.append(value)  # joined without a copy
    else:
        pieces.append(_encode_leaf(value))


def _dump_members(members: object, pieces: list[bytes], standard: bool) -> None:
    pieces.append(b"{")
    first = True
    for key, value in members:  # type: ignore[attr-defined] # any iterable of pairs
        if value is None:
            continue
        if not first:
            pieces.append(b",")
        first = False
        if isinstance(key, msgspec.Struct):
            text = dumps(key)
            pieces.append(_encode_leaf(text.decode()) if standard else text)
        elif isinstance(key, int):
            pieces.append(b'"%d"' % key if standard else b"%d" % key)
        else:
            pieces.append(_encode_leaf(key))
        pieces.append(b":")
        _dump(value, pieces, standard)
    pieces.append(b"}")


def loads(data: bytes, as_type: type[T], limit: BodyLimit | None = None) -> T:
    """Return `data` as `as_type`; a key that is a number or an object becomes its text.

    `limit` is required for the body of a request: it bounds how long the event loop is blocked.  Raises ProtocolError
    for a body beyond the limit, for text that neither the standard nor the dialect allows, and for a wrong type.
    """
    if limit is not None:
        limit.check(data)
    try:
        return msgspec.json.decode(data, type=as_type, strict=False)
    except msgspec.ValidationError as error:
        raise ProtocolError("body", str(error)) from None
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        pass
    if limit is not None and len(data) > limit.bare_key_bytes:
        reason = f"{len(data)} bytes that are no standard JSON, the limit is {limit.bare_key_bytes}"
        raise ProtocolError("body", f"{reason}; put every key in quotes")
    try:
        return msgspec.convert(_parsed(java_text(data)), as_type, strict=False)
    except msgspec.ValidationError as error:
        raise ProtocolError("body", str(error)) from None


def _parsed(text: str) -> object:
    standard = quoted(text)
    if standard is None:
        raise ProtocolError("body", f"{len(text)} characters are no JSON, even with numbers and objects as keys")
    try:
        return _decode_any(standard)
    except (msgspec.DecodeError, RecursionError) as error:
        allowed = mended(standard.encode())
        if allowed is None:
            raise ProtocolError("body", f"no JSON: {error}") from None
    return _parsed(allowed.decode())
