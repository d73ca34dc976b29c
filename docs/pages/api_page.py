"""Writer of docs/api.md, from the public names of `sprocket` and their docstrings.

Run as ``python -m docs.pages.api_page <file>`` (`make docs`); a test compares the file with the page.
"""

import inspect
import re
from collections.abc import Iterable, Iterator
from importlib import import_module
from typing import Final

import sprocket
from docs.pages.command import write

_HEAD: Final = """\
# API reference

Written by `make docs` from the code; do not edit.

All public names of `sprocket`, each with the first sentence of its docstring. `help(sprocket.Producer)` shows all of
it. [client.md](client.md) explains how they work together. [Fields](client.md#fields-of-a-received-message) lists what
a received message has. `sprocket.sync` has the same names for programs without an event loop.
"""
_SITE: Final = """
## Signatures

`make site` builds a site of these pages. There, the signatures and docstrings of all names follow.

::: sprocket
    options:
      show_root_heading: false
      show_root_toc_entry: false
      heading_level: 3

::: sprocket.testing.Broker
    options:
      heading_level: 3
"""
_OTHER_MODULES: Final = ("sprocket.testing", "sprocket.spark")
# The modules in which the parts of a type are, as its text names them.
_MODULES: Final = re.compile(r"\b(?:[a-z_]+\.)+(?=[A-Z])")


def page() -> str:
    """Return the text of docs/api.md."""
    names = sorted({*sprocket.__all__, *sprocket._EXPORTS} - {"__version__"}, key=str.lower)
    kinds: dict[str, list[str]] = {"Functions": [], "Classes": [], "Types": [], "Errors": []}
    for name in names:
        kinds[_kind(getattr(sprocket, name))].append(name)
    parts = [_HEAD]
    for kind, of_kind in kinds.items():
        parts += _section(kind, "sprocket", of_kind)
    for module in _OTHER_MODULES:
        parts += _section(module, module, sorted(import_module(module).__all__, key=str.lower))
    return "".join([*parts, _SITE])


def _section(title: str, module: str, names: Iterable[str]) -> Iterator[str]:
    yield f"\n## {title}\n\n| Name | What it is |\n|---|---|\n"
    yield from (f"| `{name}` | {_about(name, getattr(import_module(module), name))} |\n" for name in names)


def _kind(value: object) -> str:
    if not inspect.isclass(value):
        return "Functions" if inspect.isroutine(value) else "Types"
    return "Errors" if issubclass(value, Exception) else "Classes"


def _about(name: str, value: object) -> str:
    """Return the first sentence of a docstring, and of a type its text, for a cell of a table."""
    if _kind(value) == "Types":
        text = f"`{_MODULES.sub('', str(value))}`"
    else:
        first = " ".join((value.__doc__ or "").partition("\n\n")[0].split("\n")).strip()
        assert first, f"{name} has no docstring"
        # Two spaces end a sentence in docstrings.
        text = re.split(r"(?<=\.)  +", re.sub(r"\n +", " ", first), maxsplit=1)[0]
        text = re.sub(r" +", " ", text).rstrip(":").removesuffix(".")
    return text.replace("|", "\\|")


if __name__ == "__main__":
    write(page())
