"""A page of metrics as Prometheus reads it: families by name, with their type and the labels of each series."""

import asyncio
import re
import urllib.request
from dataclasses import dataclass, field

_SAMPLE = re.compile(r"([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(.*)\})? ([^ ]+)(?: \d+)?$")
_LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\]|\\.)*)"')
_PARTS = ("_bucket", "_count", "_sum")


@dataclass
class Family:
    """One metric: its type, and the samples with name, labels and value."""

    kind: str
    samples: list[tuple[str, dict[str, str], float]] = field(default_factory=list)

    @property
    def label_names(self) -> set[frozenset[str]]:
        """The sets of labels that its series have, without those of a bucket."""
        return {frozenset(labels) - {"le"} for _, labels, _ in self.samples}


def parse(text: str) -> dict[str, Family]:
    """Return the families.  Raises ValueError for a line that is none of the format."""
    kinds: dict[str, Family] = {}
    families: dict[str, Family] = {}
    for line in text.splitlines():
        if line.startswith("# TYPE "):
            _, _, name, kind = line.split(" ")
            if kind != "info":
                kinds[name] = Family(kind)
        elif line and not line.startswith("#"):
            found = _SAMPLE.match(line)
            if found is None:
                raise ValueError(line)
            name, labels, value = found.groups()
            family = families.setdefault(_family(name, kinds), Family(_kind(name, kinds)))
            family.samples.append((name, dict(_LABEL.findall(labels or "")), float(value)))
    return families


def _family(name: str, families: dict[str, Family]) -> str:
    for part in _PARTS:
        if name.endswith(part) and _kind(name, families) == "histogram":
            return name.removesuffix(part)
    return name


def _kind(name: str, kinds: dict[str, Family]) -> str:
    """Return the type of a sample's metric; the exporter of RocketMQ writes it under the name without the unit."""
    found = [known for known in kinds if name.startswith(known)]
    return kinds[max(found, key=len)].kind if found else "info"


def scrape(port: int) -> dict[str, Family]:
    """Return the families that a server on this machine shows."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=30) as page:
        return parse(page.read().decode())


async def scrape_here(port: int) -> dict[str, Family]:
    """Do as `scrape`, for a server in this event loop."""
    return await asyncio.to_thread(scrape, port)
