"""docs/api.md names every public name, and docs/client.md every field of a received message."""

import inspect
import re
from pathlib import Path
from typing import get_type_hints

import sprocket
from docs.pages.api_page import page
from sprocket import PoppedMessage, ReceivedMessage

DOCS = Path(__file__).resolve().parents[3] / "docs"


def test_page_is_up_to_date() -> None:
    assert (DOCS / "api.md").read_text(encoding="utf-8") == page(), "run `make docs`"


def test_the_page_shows_every_public_name_with_a_text() -> None:
    shown = dict(re.findall(r"^\| `(\w+)` \| (\S.*) \|$", page(), re.MULTILINE))
    assert {*sprocket.__all__, "Lease", "Leases", "LeaseRefused", "Broker", "session"} - {"__version__"} <= shown.keys()
    assert "::: sprocket\n" in page()  # for the site


def fields(kind: type) -> dict[str, str]:
    """Return the types of the public fields of a class of messages, from its annotations."""
    arguments = get_type_hints(kind.__init__)  # type: ignore[misc]
    found = {}
    for name in dir(kind.__new__(kind)):
        value = inspect.getattr_static(kind, name)
        if name.startswith("_") or inspect.isfunction(value):
            continue
        hint = get_type_hints(value.fget)["return"] if isinstance(value, property) else arguments[name]
        found[name] = hint.__name__ if isinstance(hint, type) and not hasattr(hint, "__args__") else str(hint)
    return found


def test_the_fields_of_a_received_message_are_those_of_the_class() -> None:
    part = (DOCS / "client.md").read_text(encoding="utf-8").partition("\n### Fields of a received message\n")[2]
    part = part.partition("\n#")[0].replace(r"\|", "|")  # a bar in a table
    assert dict(re.findall(r"^\| `(\w+)` \| `([^`]+)` \| \S.* \|$", part, re.MULTILINE)) == fields(ReceivedMessage)
    of_popped = set(re.findall(r"`(\w+)`", part.partition("A `PoppedMessage` has ")[2]))
    assert of_popped == fields(PoppedMessage).keys()
