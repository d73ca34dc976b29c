"""Changes at all masters of the cluster, and who refused them."""

from collections.abc import Awaitable, Callable
from typing import NamedTuple

from dashboard.page import Visit
from sprocket.client.admin.admin_client import AdminError
from sprocket.client.admin.at_once import check_rights


class Changed(NamedTuple):
    """What came of a change: a sentence about the brokers that made it, empty if none did, and the others with why."""

    done: str
    failed: list[tuple[str, str]]


NOTHING = Changed("", [])


async def on_masters(visit: Visit, what: str, change: Callable[[str], Awaitable[None]]) -> Changed:
    """Change something at each master; `what` says it.  Raises AdminDenied if the visitor may not do so."""
    brokers = (await visit.admin.cluster_info()).masters()
    outcomes = await visit.at_once.each(brokers, lambda name: change(brokers[name]))
    check_rights(outcomes)
    done = sorted(name for name, one in outcomes.items() if not isinstance(one, AdminError))
    failed = [(name, str(one)) for name, one in outcomes.items() if isinstance(one, AdminError)]
    return Changed(f"{what} on {', '.join(done)}." if done else "", failed)
