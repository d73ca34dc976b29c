"""The code for Sprocket in docs/coming-from is one program, the same in each page, and it runs."""

import re
import textwrap
from pathlib import Path

from sprocket.testing import Broker

PAGES = sorted((Path(__file__).resolve().parents[2] / "docs" / "coming-from").glob("*.md"))
_HALVES = re.compile(r"^([^\n]+):\n\n```python\n(.*?)^```", re.DOTALL | re.MULTILINE)
_FRAME = re.compile(r"frame\.\n\n```python\n(.*?)^```", re.DOTALL | re.MULTILINE)


def halves(page: Path) -> dict[str, list[str]]:
    """Return the programs of a page by the name of the system."""
    found: dict[str, list[str]] = {}
    for name, code in _HALVES.findall(page.read_text(encoding="utf-8")):
        found.setdefault(name, []).append(code)
    return found


def test_every_page_has_the_same_shop() -> None:
    assert [page.stem for page in PAGES] == ["kafka", "rabbitmq", "redis"]
    ours = [halves(page).pop("Sprocket") for page in PAGES]
    assert ours[0] == ours[1] == ours[2]
    assert len(ours[0]) == 5
    for page in PAGES:
        (other,) = [codes for name, codes in halves(page).items() if name != "Sprocket"]
        assert len(other) == 5
        for code in other:
            compile("async def program():\n" + textwrap.indent(code, "    ") + "\n    pass", page.name, "exec")


def test_the_shop_runs(sprocket_broker: Broker) -> None:
    parts = textwrap.indent("\n".join(halves(PAGES[0])["Sprocket"]), 8 * " ")
    (frame,) = {_FRAME.findall(page.read_text(encoding="utf-8"))[0] for page in PAGES}
    source = re.sub(r"^ +\.\.\.  # the parts.*", lambda _: parts + "        print(steps)", frame, flags=re.MULTILINE)
    source = source.replace("minutes=15", "seconds=1").replace("127.0.0.1:9876", sprocket_broker.namesrv)
    printed: list[tuple[object, ...]] = []
    exec(compile(source, "docs/coming-from", "exec"), {"print": lambda *words: printed.append(words)})
    order = b"order 7: shoes"
    assert printed == [
        ("shipped", order), ("billed", order), ("reminded", b"order 7 is not paid"), (3900,),
        ([b"placed", b"paid", b"shipped"],),
    ]  # fmt: skip
