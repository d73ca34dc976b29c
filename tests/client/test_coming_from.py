"""The halves of Sprocket in docs/coming-from are one program, the same in each page, and it runs."""

import asyncio
import re
import textwrap
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import sprocket
from sprocket.testing import Broker

PAGES = sorted((Path(__file__).resolve().parents[2] / "docs" / "coming-from").glob("*.md"))
_HALVES = re.compile(r"^([^\n]+):\n\n```python\n(.*?)^```", re.DOTALL | re.MULTILINE)


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


async def test_the_shop_runs(sprocket_broker: Broker) -> None:
    code = "\n".join(halves(PAGES[0])["Sprocket"]).replace("minutes=15", "seconds=1")
    space: dict[str, object] = {name: getattr(sprocket, name) for name in sprocket.__all__}
    printed: list[tuple[object, ...]] = []
    space |= {"timedelta": timedelta, "dataclass": dataclass, "print": lambda *words: printed.append(words)}
    source = "async def program(mq):\n" + textwrap.indent(code, "    ") + "\n    return steps\n"
    exec(compile(source, "docs/coming-from", "exec"), space)
    async with sprocket.connect(sprocket_broker.namesrv) as mq:
        steps = await asyncio.wait_for(space["program"](mq), 60)  # type: ignore[operator]
    assert steps == [b"placed", b"paid", b"shipped"]
    order = b"order 7: shoes"
    assert printed == [("shipped", order), ("billed", order), ("reminded", b"order 7 is not paid"), (3900,)]
