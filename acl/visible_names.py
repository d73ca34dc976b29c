"""Which names a list shows its caller: all, or those in the namespaces that the caller may list."""

from collections.abc import Callable, Generator, Mapping
from typing import Any, Final, TypeVar

from acl.access_request import NameFilter
from acl.gate import Access
from sprocket.remoting.command import Request

T = TypeVar("T")
_STEP_NAMES: Final = 1024


def visible_names(request: Request[Any]) -> NameFilter | None:
    """Return which names the response to `request`, with a code in `FILTERED`, shows the sender; None: all."""
    return request.access.visible() if isinstance(request.access, Access) else None


def only_visible(
    table: Mapping[str, T], request: Request[Any], shown_by: Callable[[str], str] = str
) -> Generator[None, None, Mapping[str, T]]:
    """Return the entries of `table` that the sender of `request` may see, in steps that take less than a ms each.

    `shown_by` returns the name on which it depends whether an entry is shown.
    """
    shows = visible_names(request)
    if shows is None:
        return table
    found: dict[str, T] = {}
    for number, (name, entry) in enumerate(list(table.items()), 1):
        if shows(shown_by(name)):
            found[name] = entry
        if not number % _STEP_NAMES:
            yield
    return found
