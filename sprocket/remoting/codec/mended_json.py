"""JSON with texts that the standard forbids and Java's readers take.

A text may be in another encoding than UTF-8, hold half of a surrogate pair as an escape, or hold control characters.
Only what a strict decoder has refused is mended: usual JSON pays nothing.
Source: RocketMQ 5.3.3, `RemotingSerializable` (fastjson); `String.getBytes` writes half of a pair as a question mark.
"""

import re
from typing import Final

from sprocket.remoting.codec.bare_keys import STRING
from sprocket.remoting.codec.java_text import java_text

# The properties of a message, each character an escape, fit in.  The worst text of this size takes some milliseconds.
_MAX_BYTES: Final = 256 * 1024
# Quotation marks of a text in which blanks are mended: to split it at so many takes some milliseconds.
_MAX_MARKS: Final = 30_000
_HIGH: Final = "u[dD][89abAB][0-9a-fA-F]{2}"
_LOW: Final = "u[dD][c-fC-F][0-9a-fA-F]{2}"
# A pair, or half of one, after an odd number of backslashes; of them, all but one stand for themselves.
_SURROGATES: Final = re.compile(rf"\\(?<!\\\\)((?:\\\\)*+)(?:{_HIGH}(\\{_LOW})?|{_LOW})")
_CONTROL: Final = re.compile(r"[\0-\x08\x0b\x0c\x0e-\x1f]")
_BLANK: Final = re.compile(r"[\t\n\r]")
_ESCAPES: Final = {code: f"\\u{code:04x}" for code in range(0x20)}
# Blanks between texts; the others are wrong there in any form.
_BLANKS: Final = {code: _ESCAPES.pop(code) for code in b"\t\n\r"}


def mended(data: bytes) -> bytes | None:
    """Return `data` with texts that the standard allows; None if that changes nothing, or `data` is too large."""
    if len(data) > _MAX_BYTES:
        return None
    text = _SURROGATES.sub(_allowed, java_text(data))
    if _CONTROL.search(text):
        text = text.translate(_ESCAPES)
    if _BLANK.search(text) and 0 < text.count('"') <= _MAX_MARKS:
        parts = STRING.split(text)
        # All texts at once: by now none holds the character that is put between them.
        parts[1::2] = "\0".join(parts[1::2]).translate(_BLANKS).split("\0")
        text = "".join(parts)
    whole = text.encode()
    return None if whole == data else whole


def _allowed(surrogates: re.Match[str]) -> str:
    return f"{surrogates[1]}?" if surrogates[2] is None else surrogates[0]
