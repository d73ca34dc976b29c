"""What a page gets and what it returns, without any web library."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from dashboard.asking.links import LinkLook
from dashboard.sampling.history import History
from dashboard.settings import DashboardSettings
from sprocket.client.admin.admin_client import AdminClient
from sprocket.client.admin.at_once import AtOnce
from sprocket.common.clock import Clock
from sprocket.remoting.credentials import Credentials

MAX_FIELD_CHARACTERS: Final = 1024


class BadInput(Exception):
    """A field of a form or an address is wrong; the text says what is allowed."""


@dataclass(frozen=True, kw_only=True)
class Visit:
    """One request of a visitor.  `admin` asks the cluster as this visitor; `fields` are of the address or the form."""

    fields: Mapping[str, str]
    admin: AdminClient
    credentials: Credentials | None
    links: LinkLook
    at_once: AtOnce
    history: History
    settings: DashboardSettings
    clock: Clock

    def text(self, name: str, max_characters: int = MAX_FIELD_CHARACTERS) -> str:
        """Return a field without blanks around it, empty if it is absent.  Raises BadInput."""
        value = self.fields.get(name, "").strip()
        if len(value) > max_characters:
            raise BadInput(f"{name} has {len(value)} characters; allowed are {max_characters}")
        return value

    def needed(self, name: str) -> str:
        """Return a field that must not be empty.  Raises BadInput."""
        value = self.text(name)
        if not value:
            raise BadInput(f"{name} is missing: fill it in and try again")
        return value

    def number(self, name: str, default: int, low: int, high: int) -> int:
        """Return a whole number in a range.  Raises BadInput."""
        value = self.text(name, 20)
        if not value:
            return default
        try:
            number = int(value)
        except ValueError:
            raise BadInput(f"{name} is {value!r}; allowed is a whole number from {low} to {high}") from None
        if not low <= number <= high:
            raise BadInput(f"{name} is {number}; allowed is {low} to {high}")
        return number


@dataclass(frozen=True)
class Refused:
    """Why a page lacks what was asked for, and what to do; `near` are names like the given one, with addresses."""

    what: str
    advice: str
    near: Sequence[tuple[str, str]] = ()


@dataclass(frozen=True)
class Page:
    """What to show: a template and its values.  `refused` is shown above them."""

    template: str
    values: Mapping[str, object] = field(default_factory=dict)
    status: int = 200
    refused: Refused | None = None


Handler = Callable[[Visit], Awaitable[Page]]


@dataclass(frozen=True)
class PageRoute:
    """One address of the dashboard.  A route with `changes` serves only with ``--allow-changes``, by POST.

    `form` shows the form again, as it was filled in, if `handler` fails.
    """

    path: str
    handler: Handler
    changes: bool = False
    form: Handler | None = None

    @property
    def method(self) -> str:
        """HTTP method that it serves."""
        return "POST" if self.changes else "GET"
