"""JSON with texts that the standard forbids and Java's readers take.

A text may be in another encoding than UTF-8, hold half of a surrogate pair as an escape, or hold control characters.
Only what a strict decoder has refused is mended: usual JSON pays nothing.
Source: RocketMQ 5.3.3, `RemotingSerializable` (fastjson); `String.getBytes` writes half of a pair as a question mark.
"""

import re
from typing import Final

from sprocket.remoting.codec.java_text import java_text

# The properties of a message, each character an escape, fit in.  The worst text of this size takes some milliseconds.
_MAX_BYTES: Final = 256 * 1024
_HIGH: Final = "u[dD][89abAB][0-9a-fA-F]{2}"
_LOW: Final = "u[dD][c-fC-F][0-9a-fA-F]{2}"
# A pair, or half of one, after an odd number of backslashes; of them, all but one stand for themselves.
_SURROGATES: Final = re.compile(rf"\\(?<!\\\\)((?:\\\\)*+)(?:{_HIGH}(\\{_LOW})?|{_LOW})")
_CONTROL: Final = re.compile(r"[\0-\x08\x0b\x0c\x0e-\x1f]")
# Between texts they are wrong in any form; blanks are not.
_ESCAPES: Final = {code: f"\\u{code:04x}" for code in range(0x20) if chr(code) not in "\t\n\r"}


def mended(data: bytes) -> bytes | None:
    """Return `data` with texts that the standard allows; None if that changes nothing, or `data` is too large."""
    if len(data) > _MAX_BYTES:
        return None
    text = _SURROGATES.sub(_allowed, java_text(data))
    if _CONTROL.search(text):
        text = text.translate(_ESCAPES)
    whole = text.encode()
    return None if whole == data else whole


def _allowed(surrogates: re.Match[str]) -> str:
    return f"{surrogates[1]}?" if surrogates[2] is None else surrogates[0]
