"""Links and headings of Markdown pages, as GitHub and MkDocs read them."""

import re
from collections import Counter

_FENCE = re.compile(r"^(```|~~~).*?^\1", re.DOTALL | re.MULTILINE)
_CODE = re.compile(r"`[^`\n]+`")
_LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)")
# A path of this project: a folder, then a file of code.  Shorter ones stand after a sentence that names their folder.
_PATH = re.compile(r"`((?:[\w.-]+/)+[\w.-]+\.(?:py|pyx|pxd|c|h|go|java))`")
# Names that stand directly after the file that has them.
_PATH_AND_NAMES = re.compile(
    r"`([\w./-]+\.(?:py|pyx|pxd))`( `[A-Za-z_]\w*(?:\.\w+)*`(?:, `[A-Za-z_]\w*(?:\.\w+)*`(?! in))*)"
)
_NAME = re.compile(r"`([A-Za-z_]\w*(?:\.\w+)*)`")
# A method or an attribute of a class, and a name that is private to a file.
_MEMBER = re.compile(r"`([A-Z]\w+)\.(\w+)(?:\(\))?`")
_PRIVATE = re.compile(r"`(_[A-Za-z]\w*)`")
_HEADING = re.compile(r"^#{1,6} +(.+?) *#*$", re.MULTILINE)


def links_of(text: str) -> list[str]:
    """Return the targets of the links in `text`, without those in code."""
    return _LINK.findall(_CODE.sub("", _FENCE.sub("", text)))


def paths_of(text: str) -> list[str]:
    """Return the paths of code files that `text` names."""
    return _PATH.findall(text)


def names_in_files_of(text: str) -> list[tuple[str, str]]:
    """Return pairs of a code file and a name that `text` says is in it."""
    text = _FENCE.sub("", text)
    pairs = [(found[1], name) for found in _PATH_AND_NAMES.finditer(text) for name in _NAME.findall(found[2])]
    return [(path, name) for path, name in pairs if not re.search(r"\.(py|pyx|pxd|md)$", name)]


def members_of(text: str) -> list[tuple[str, str]]:
    """Return pairs of a class and one of its members that `text` names."""
    return _MEMBER.findall(_FENCE.sub("", text))


def private_names_of(text: str) -> list[str]:
    """Return the names with a leading underscore in `text`."""
    return _PRIVATE.findall(_FENCE.sub("", text))


def anchors_of(text: str) -> set[str]:
    """Return the anchors of the headings in `text`; a heading that repeats gets a number."""
    seen: Counter[str] = Counter()
    anchors = set()
    for heading in _HEADING.findall(_FENCE.sub("", text)):
        words = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("`", "").replace("*", "")
        anchor = re.sub(r"[^\w\- ]", "", words.lower()).replace(" ", "-")
        anchors.add(f"{anchor}-{seen[anchor]}" if seen[anchor] else anchor)
        seen[anchor] += 1
    return anchors
