"""Links and headings of Markdown pages, as GitHub and MkDocs read them."""

import re
from collections import Counter

_FENCE = re.compile(r"^(```|~~~).*?^\1", re.DOTALL | re.MULTILINE)
_CODE = re.compile(r"`[^`\n]+`")
_LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)")
# A path of this project: a folder, then a file of code.  Shorter ones stand after a sentence that names their folder.
_PATH = re.compile(r"`((?:[\w.-]+/)+[\w.-]+\.(?:py|pyx|pxd|c|h|go|java))`")
_HEADING = re.compile(r"^#{1,6} +(.+?) *#*$", re.MULTILINE)


def links_of(text: str) -> list[str]:
    """Return the targets of the links in `text`, without those in code."""
    return _LINK.findall(_CODE.sub("", _FENCE.sub("", text)))


def paths_of(text: str) -> list[str]:
    """Return the paths of code files that `text` names."""
    return _PATH.findall(text)


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
