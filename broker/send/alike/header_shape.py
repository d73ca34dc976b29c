"""The form of a JSON header, learnt from one header, to which all headers of a read are compared at once.

Headers of one length from one client differ in few values: queue, time, opaque, properties.  A `HeaderShape` has the
range of each octet, so that one subtraction and one comparison of arrays check a whole read.  It describes only headers
without blanks, and without escapes other than those that end names and values of properties.
"""

import re
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from broker.send.send_kinds import SendKind, kind_of
from broker.timer.timed_sends import is_usual_timed
from broker.timer.timer_intake import TIMER_NAMES
from broker.transaction.half_sends import is_usual_half
from sprocket.remoting.command import FLAG_ONEWAY, Request
from sprocket.remoting.message import properties as names
from sprocket.remoting.message.properties import find_last, terminated
from store.alike.columns import Octets
from store.alike.octet_ranges import PRINTABLE, OctetRanges

_ITEM: Final = rb'"[^"\\]*":(?:"(?:[^"\\]|\\u000[12])*"|-?[0-9]+|true|false|null)'
_HEADER: Final = re.compile(rb'\{(?:%b,)*"extFields":\{(%b(?:,%b)*)\}(?:,%b)*\}' % ((_ITEM,) * 4))
_NAME_AND_VALUE: Final = re.compile(rb'"([^"\\]*)":(?:"((?:[^"\\]|\\u000[12])*)"|([^",}]+))')
_PROPERTY: Final = re.compile(rb"([^\\]+)\\u0001([^\\]*)(?:\\u0002|\Z)")
_ESCAPE_BYTES: Final = len(rb"\u0001")
# A number with more digits may be out of range, or a time that is further away than any delay.
_MAX_DIGITS: Final = {"queue_id": 9, "opaque": 9, "born_timestamp": 18}
_MAX_TIME_DIGITS: Final = 15
# Properties whose values decide how a message is stored or answered: all messages of a shape have the same.
_DECIDING: Final = frozenset({"TRAN_MSG", "PGROUP", "WAIT"})
# Printable ASCII without what JSON escapes, and without the character that few names contain except the seal's.
_PLAIN_TEXT: Final = bytes(octet for octet in range(0x20, 0x7F) if octet not in b'"\\#')
_SHARDING_KEY: Final = names.encoded_name(names.SHARDING_KEY)
_WAIT: Final = names.encoded_name(names.WAIT)


class Copy(NamedTuple):
    """A value that stands in the header and in the stored properties."""

    source: slice
    target: slice


class HeaderShape:
    """Headers that differ from a known one only in values that change nothing but themselves.

    `gaps` are where these values are in the header, by name: attributes of the header, `opaque`, and properties.
    `properties` are those of the known header as they are stored, up to those that the broker adds; `copies` are the
    values in them that vary.
    """

    __slots__ = (
        "_ranges", "copies", "flag", "gaps", "is_fifo", "kind", "properties", "reconsume_times",
        "size_bytes", "sys_flag", "topic",
    )  # fmt: skip

    def __init__(
        self, header: bytes, request: Request[Any], kind: SendKind, gaps: dict[str, slice], copies: list[Copy]
    ) -> None:
        self.size_bytes, self.kind, self.gaps, self.copies = len(header), kind, gaps, copies
        self.topic: str = request.header.topic
        self.flag: int = request.header.flag
        self.sys_flag: int = request.header.sys_flag
        self.reconsume_times: int = request.header.reconsume_times or 0
        self.properties = terminated(request.header.properties.encode())
        self.is_fifo = kind is not SendKind.HALF and _SHARDING_KEY in self.properties
        self._ranges = OctetRanges(header)
        for name, gap in gaps.items():
            if _is_numeric(name):
                self._ranges.vary_number(gap)
            else:
                self._ranges.vary(gap, PRINTABLE)

    @classmethod
    def of(cls, header: bytes, request: Request[Any], wire_names: Mapping[str, str]) -> "HeaderShape | None":
        """Return the shape of `header`, whose request is `request`; None if its sends need the Python path.

        `wire_names` are the names of the header's fields by attribute.
        """
        gaps, text = _spans_of(header, wire_names), request.header.properties
        if gaps is None or not text or request.flag & FLAG_ONEWAY or request.header.batch:
            return None
        kind, field = kind_of(text), gaps.pop("properties")
        found = _properties_of(header[field])
        if found is None or not _is_usual(text, found, kind):
            return None
        copies, all_names = [], [one.name for one in found]
        for one in found:
            if one.name not in _DECIDING and all_names.count(one.name) == 1 and one.source.start < one.source.stop:
                gap = slice(field.start + one.source.start, field.start + one.source.stop)
                gaps[one.name] = gap
                copies.append(Copy(gap, one.target))
        return cls(header, request, kind, gaps, copies)

    def alike(self, headers: Octets) -> int:
        """Return how many of `headers`, one a row, have this shape, up to the first that has not."""
        count = len(headers)
        if not self._ranges.hold(headers):
            count = int(self._ranges.outside(headers).any(axis=1).argmax())
            headers = headers[:count]
        return count if count and self._is_plain_text(headers) else 0

    def padded(self, header: bytes) -> bytes | None:
        """Return a header as long as this shape, with digits 1 before its opaque; None if its opaque is not shorter."""
        missing, at = self.size_bytes - len(header), self.gaps["opaque"].start
        if not missing:
            return header
        digits = self.gaps["opaque"].stop - at - missing
        # A number of several digits does not begin with 0.
        if missing < 0 or digits < 1 or (digits > 1 and header[at : at + 1] == b"0"):
            return None
        return header[:at] + b"1" * missing + header[at:]

    def excess(self, header: bytes) -> int:
        """Return how much larger the opaque is that `padded` makes."""
        missing = self.size_bytes - len(header)
        digits = self.gaps["opaque"].stop - self.gaps["opaque"].start - missing
        return int(b"1" * missing + b"0" * digits) if missing else 0

    def _is_plain_text(self, headers: Octets) -> bool:
        """Return whether no value needs an escape."""
        for name, gap in self.gaps.items():
            if _is_numeric(name):
                continue
            content = headers[:, gap].tobytes()
            # JSON escapes no letter and no digit, and the templates of responses escape nothing.
            if not content.isalnum() and (name == names.UNIQ_KEY or content.translate(None, _PLAIN_TEXT)):
                return False
        return True


class _Property(NamedTuple):
    name: str
    source: slice  # of the value, in the header's field
    target: slice  # of the value, without escapes


def _is_numeric(name: str) -> bool:
    return name in _MAX_DIGITS or name in TIMER_NAMES


def _properties_of(raw: bytes) -> list[_Property] | None:
    """Return the properties in a field of the header; None if they are unusual."""
    if not raw.isascii() or not raw.decode().isprintable() or b"#" in raw:
        return None
    found: list[_Property] = []
    at = 0
    while at < len(raw):
        match = _PROPERTY.match(raw, at)
        if match is None:
            return None
        begin, end = match.span(2)
        # Each escape before the value becomes one byte.
        shift = (2 * len(found) + 1) * (_ESCAPE_BYTES - 1)
        found.append(_Property(match[1].decode(), slice(begin, end), slice(begin - shift, end - shift)))
        at = match.end()
    return found


def _is_usual(text: str, found: list[_Property], kind: SendKind) -> bool:
    """Return whether a message with these properties is stored and answered as others of its kind."""
    if [one.name for one in found if one.name.endswith(names.UNIQ_KEY)] != [names.UNIQ_KEY]:
        return False
    if any(one.name in _MAX_DIGITS for one in found) or find_last(text.encode(), _WAIT) == b"false":
        return False
    if kind is SendKind.HALF:
        return is_usual_half(text)
    if kind is SendKind.TIMED:
        asked = next(text.encode()[one.target] for one in found if one.name in TIMER_NAMES)
        return is_usual_timed(text) and is_number(asked, _MAX_TIME_DIGITS)
    return kind is SendKind.PLAIN


def _spans_of(header: bytes, wire_names: Mapping[str, str]) -> dict[str, slice] | None:
    """Return where the values of a header are that may vary; None if it has another form."""
    found = values_of(header)
    if found is None:
        return None
    fields, others = found
    spans = {name: fields.get(wire_names[name].encode()) for name in ("queue_id", "born_timestamp", "properties")}
    spans["opaque"] = others.get(b"opaque")
    known = {name: span for name, span in spans.items() if span is not None}
    if len(known) < len(spans) or not all(is_number(header[known[name]], size) for name, size in _MAX_DIGITS.items()):
        return None
    return known


def values_of(header: bytes) -> tuple[dict[bytes, slice], dict[bytes, slice]] | None:
    """Return where the values of a JSON header's fields are, by name, and those of its other members.

    None if the header has another form, or a name twice.
    """
    whole = _HEADER.fullmatch(header)
    if whole is None:
        return None
    fields, before = _values_in(header, *whole.span(1)), _values_in(header, 1, whole.start(1))
    after = _values_in(header, whole.end(1), len(header))
    if fields is None or before is None or after is None or before.keys() & after.keys():
        return None
    return fields, before | after


def _values_in(header: bytes, begin: int, end: int) -> dict[bytes, slice] | None:
    """Return where the values of names are in a part of a header; None if a name occurs twice."""
    found = {}
    matches = list(_NAME_AND_VALUE.finditer(header, begin, end))
    for match in matches:
        found[match[1]] = slice(*match.span(2 if match[2] is not None else 3))
    return found if len(found) == len(matches) else None


def is_number(text: bytes, max_digits: int) -> bool:
    """Return whether a text is a number as clients write it, not below 0."""
    return text.isdigit() and len(text) <= max_digits and (len(text) == 1 or text[:1] != b"0")
