"""Accounts of the cluster: users and their policies (ACL 2.0), and the accounts of `plain_acl.yml` (ACL 1.0)."""

from typing import Final

from dashboard.asking.masters import NOTHING, Changed, on_masters
from dashboard.page import BadInput, Page, PageRoute, Visit
from dashboard.views.accounts import account_rows, plain_rows
from sprocket.client.admin.admin_client import AdminDenied
from sprocket.client.admin.at_once import answered, check_rights, failures
from sprocket.remoting.bodies.auth import UserInfo

_TYPES: Final = {"Normal": "normal user: only what its policies allow", "Super": "super user: everything"}
_MAX_PASSWORD: Final = 256


async def show(visit: Visit) -> Page:
    """Show the users, and the form for a new one as it was filled in."""
    return await _page(visit, NOTHING)


async def _page(visit: Visit, changed: Changed) -> Page:
    brokers = (await visit.admin.cluster_info()).masters()
    users = await visit.at_once.each(brokers, lambda name: visit.admin.users(brokers[name]))
    check_rights(users)
    acls = await visit.at_once.each(brokers, lambda name: visit.admin.acls(brokers[name]))
    # A broker without ACL 1.0 refuses.  One that does not answer is named already.
    plain = await visit.at_once.each(brokers, lambda name: visit.admin.plain_accounts(brokers[name]))
    # A broker without ACL 2.0 refuses to list users: it has none.
    silent = [
        (name, str(one)) for name, one in failures(users).items() if one.code is None or isinstance(one, AdminDenied)
    ]
    values = {
        "rows": account_rows(answered(users), answered(acls)), "plain": plain_rows(answered(plain)),
        "brokers": sorted(brokers), "silent_brokers": silent,
        "types": _TYPES, "done": changed.done, "failed": changed.failed,
        # Brokers without authentication keep no users, so none can be created.
        "has_users": bool(answered(users)),
        "new_user": "" if changed.done else visit.fields.get("user", ""), "new_type": visit.fields.get("type", ""),
    }  # fmt: skip
    return Page("accounts.html", values)


async def create(visit: Visit) -> Page:
    """Add a user on all masters."""
    name, secret, kind = visit.needed("user"), visit.fields.get("secret", ""), visit.needed("type")
    if kind not in _TYPES:
        raise BadInput(f"type is {kind!r}; allowed are {', '.join(_TYPES)}")
    if not secret or len(secret) > _MAX_PASSWORD:
        raise BadInput(f"the password is empty or longer than {_MAX_PASSWORD} characters")
    user = UserInfo(username=name, password=secret, user_type=kind)
    created = f"User {name} was created"
    return await _page(visit, await on_masters(visit, created, lambda address: visit.admin.create_user(address, user)))


async def delete(visit: Visit) -> Page:
    """Remove a user from all masters."""
    name = visit.needed("user")
    deleted = f"User {name} was deleted"
    return await _page(visit, await on_masters(visit, deleted, lambda address: visit.admin.delete_user(address, name)))


ROUTES = (
    PageRoute("/accounts", show),
    PageRoute("/accounts/create", create, changes=True, form=show),
    PageRoute("/accounts/delete", delete, changes=True, form=show),
)
