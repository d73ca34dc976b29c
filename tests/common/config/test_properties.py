"""The grammar of .properties files: by example, by round trip, and against Java itself."""

import shutil
import struct
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from sprocket.common.config.properties import Entry, edited, parse, render
from sprocket.common.errors import ConfigError
from tests.tiers import examples

# Characters and pieces that mean something to the grammar, so that examples are dense in edge cases.
PIECES = st.sampled_from(
    [
        "a",
        "b",
        "key",
        "=",
        ":",
        " ",
        "\t",
        "\f",
        "\\",
        "\n",
        "\r",
        "\r\n",
        "#",
        "!",
        "\\u0041",
        "\\u12",
        "\\t",
        "\\=",
        "é",
    ]
)
TEXTS = st.lists(PIECES, max_size=30).map("".join)


@pytest.mark.parametrize(
    ("text", "entries"),
    [
        ("a=b", [("a", "b", 1)]),
        ("a = b ", [("a", "b ", 1)]),
        ("a:b\nc d\n  e  =  f", [("a", "b", 1), ("c", "d", 2), ("e", "f", 3)]),
        ("# x=1\n! y=2\n\n  # z\nk=v", [("k", "v", 5)]),
        ("k=a\\\n   b\\\r\n\tc\nl=1", [("k", "abc", 1), ("l", "1", 4)]),
        ("a\\=b\\:c\\ d=e", [("a=b:c d", "e", 1)]),
        ("k=\\u0041\\t\\n\\q", [("k", "A\t\nq", 1)]),
        ("k==v", [("k", "=v", 1)]),
        ("k", [("k", "", 1)]),
        ("=v", [("", "v", 1)]),
        ("# comment \\\nk=v", [("k", "v", 2)]),
        ("k=v\\", [("k", "v", 1)]),
        ("k=\\ud83d\\ude00", [("k", "😀", 1)]),
        ("a=1\ra=2", [("a", "1", 1), ("a", "2", 2)]),
    ],
)
def test_example(text: str, entries: list[tuple[str, str, int]]) -> None:
    assert parse(text) == [Entry(*entry) for entry in entries]


def test_bytes_are_latin_1_as_in_java() -> None:
    assert parse(b"k=\xe9")[0].value == "é"


@pytest.mark.parametrize("text", ["ok=1\nk=\\u12", "ok=1\nk=\\u00zz", "ok=1\n\\u1=1"])
def test_malformed_unicode_escape_is_named_with_its_line(text: str) -> None:
    with pytest.raises(ConfigError, match=r"^x\.conf:2: .*4 hexadecimal digits"):
        parse(text, "x.conf")


@given(st.dictionaries(st.text(max_size=8), st.text(max_size=8), max_size=5))
@example({"#": " ", "!a": "=", "a b": "\\"})
def test_render_is_read_back(values: dict[str, str]) -> None:
    rendered = render(values)
    assert rendered.isascii()
    assert {entry.key: entry.value for entry in parse(rendered)} == values


@pytest.mark.parametrize(
    ("content", "values", "expected"),
    [
        (b"", {"a": "1"}, b"a=1\n"),
        (b"a=0", {"a": "1"}, b"a=1"),
        (b"a=0", {"b": "1"}, b"a=0\nb=1\n"),
        (b"x=1\r\na : 0\r\ny=2\r\n", {"a": "1", "b": "2"}, b"x=1\r\na=1\r\ny=2\r\nb=2\r\n"),
        (b"a=0\\\n  5\n#a=7\nb=2\n", {"a": "1"}, b"a=1\n#a=7\nb=2\n"),
        (b"a=0\na=5\n", {"a": "1"}, b"a=0\na=1\n"),
        (b"x=1\\", {"a": "1"}, b"x=1\\\n\na=1\n"),
        (b"a=1\\\n", {"a": "2", "b": "3"}, b"a=2\nb=3\n"),
        (b"# \xff\\", {"a": "1\n#2"}, b"# \xff\\\n\na=1\\n#2\n"),
    ],
)
def test_an_edit_keeps_all_other_lines(content: bytes, values: dict[str, str], expected: bytes) -> None:
    assert edited(content, values) == expected


_PIECES = ["a", "b", "=", ":", " ", "\\", "\n", "\r", "\r\n", "#", "!", "1", "\\u0041", "\t"]


@settings(max_examples=examples(150))
@given(
    st.lists(st.sampled_from(_PIECES), max_size=25).map("".join),
    st.dictionaries(st.sampled_from(["a", "b", "c d"]), st.text(max_size=6), min_size=1),
)
@example(text="\na\\\r", values={"new": "1"})
def test_an_edited_file_reads_back_as_it_did_but_for_what_was_edited(text: str, values: dict[str, str]) -> None:
    content = text.encode("iso-8859-1")
    expected = {entry.key: entry.value for entry in parse(content)} | values
    assert {entry.key: entry.value for entry in parse(edited(content, values))} == expected


@given(TEXTS)
def test_parse_gives_entries_with_their_lines_or_a_config_error(text: str) -> None:
    try:
        entries = parse(text)
    except ConfigError:
        return
    lines = [entry.line for entry in entries]
    assert lines == sorted(set(lines))


class JavaProperties:
    """A running Java that loads one text after the other."""

    def __init__(self, stdin: IO[bytes], stdout: IO[bytes]) -> None:
        self._stdin = stdin
        self._stdout = stdout

    def load(self, text: bytes) -> dict[str, str] | None:
        """None when Java calls the text malformed."""
        self._stdin.write(struct.pack(">i", len(text)) + text)
        self._stdin.flush()
        count = self._int()
        return None if count < 0 else {self._text(): self._text() for _ in range(count)}

    def _int(self) -> int:
        return int(struct.unpack(">i", self._stdout.read(4))[0])

    def _text(self) -> str:
        return self._stdout.read(2 * self._int()).decode("utf-16-be", "surrogatepass")


@pytest.fixture(scope="module")
def java() -> Iterator[JavaProperties]:
    if shutil.which("javac") is None:
        pytest.skip("no javac on PATH: the grammar cannot be compared with Java's")
    source = Path(__file__).with_name("LoadProperties.java")
    with subprocess.Popen(
        ["java", "-XX:TieredStopAtLevel=1", str(source)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        yield JavaProperties(process.stdin, process.stdout)
        process.stdin.close()


@pytest.mark.java
@pytest.mark.timeout(600)  # a timeout in the middle of an answer would make the next ones wrong
@settings(max_examples=examples(1_000), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(text=TEXTS)
@example(text="\\\n#a=1\nb=2")
@example(text="a\\\n\nb")
@example(text="a\\\n  #b\nc")
@example(text="\\\r\n\\\r\n x")
@example(text="=a\n\\")
def test_same_as_java(java: JavaProperties, text: str) -> None:
    content = text.encode("iso-8859-1")
    expected = java.load(content)
    if expected is None:
        with pytest.raises(ConfigError):
            parse(content)
        return
    # A lone backslash at the very end makes (or replaces) an empty key in Java; it is nobody's intention.
    ours = {entry.key: entry.value for entry in parse(content)}
    if expected != ours and text.endswith(("\\", "\\\n", "\\\r")):
        expected.pop("", None)
        ours.pop("", None)
    assert ours == expected
