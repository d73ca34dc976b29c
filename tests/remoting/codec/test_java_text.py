"""Bytes as text: the expected texts are those of `new String(bytes, UTF_8)` of OpenJDK 17."""

import pytest

from sprocket.remoting.codec.java_text import java_text

MARK = "\ufffd"


@pytest.mark.parametrize(
    ("octets", "text"),
    [
        ("c4e3bac3", MARK * 3),  # GBK
        ("d55c", MARK + "\\"),  # GBK whose second byte is a backslash
        ("e282", MARK),  # ends within a character
        ("f09f98", MARK),
        ("e28241", MARK + "A"),
        ("c3", MARK),
        ("e0a0", MARK),
        ("f0908041", MARK + "A"),
        ("c0af", MARK * 2),  # longer than needed
        ("e080af", MARK * 3),
        ("f08080af", MARK * 4),
        ("eda0bd", MARK),  # surrogates
        ("eda0", MARK),
        ("eda041", MARK + "A"),
        ("edb080", MARK),
        ("eda0bdedb880", MARK * 2),
        ("41eda0bd42", f"A{MARK}B"),
        ("eda0bded", MARK * 2),
        ("ed41", MARK + "A"),
        ("f4908080", MARK * 4),  # beyond the last character
        ("f5808080", MARK * 4),
        ("ff", MARK),
        ("80", MARK),
        ("5ac3bc72696368", "Zürich"),
        ("", ""),
    ],
)
def test_as_java_reads_it(octets: str, text: str) -> None:
    content = bytes.fromhex(octets)
    assert java_text(content) == java_text(memoryview(content)) == java_text(bytearray(content)) == text
