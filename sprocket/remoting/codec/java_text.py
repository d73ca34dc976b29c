"""Bytes of a peer or of a record as text, in the way of Java's `new String(bytes, UTF_8)`: nothing is refused."""

import re
from typing import Final

# Java makes one mark of an encoded surrogate, also of a cut one; Python makes one of each byte.
_SURROGATE: Final = re.compile(rb"\xed[\xa0-\xbf][\x80-\xbf]?")
_MARK: Final = "\N{REPLACEMENT CHARACTER}".encode()


def java_text(data: bytes | bytearray | memoryview) -> str:
    """Return UTF-8 as text, with U+FFFD for each part that is none."""
    try:
        return str(data, "utf-8")
    except UnicodeDecodeError:
        return _SURROGATE.sub(_MARK, bytes(data)).decode("utf-8", "replace")
