"""`mqadmin` about users and policies.

Source of flags, columns and output: RocketMQ 5.3.3, `tools.command.auth`.  Unlike RocketMQ's, getUser and listUser show
a password only with ``--showPassword``.
"""

from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Any, Final

import click

from sprocket.client.admin.admin_client import AdminClient
from sprocket.client.admin.auth_requests import AclChange
from sprocket.remoting.bodies.auth import AclInfo, UserInfo
from sprocket_cli.ask_each import ask_each
from sprocket_cli.client_session import SERVER_ADDRESS, CommandFailed, json_option, option_set, print_found
from sprocket_cli.mqadmin.java_form import java_form
from sprocket_cli.mqadmin.options import admin_command
from sprocket_cli.target import Target, target_options

_USER: Final = "%-16s  %-22s  %-22s  %-22s"
_ACL: Final = "%-16s  %-10s  %-22s  %-20s  %-24s  %-10s"
_HIDDEN: Final = "******"

_username_option = click.option("-u", "--username", required=True, help="Name of the user.")
_show_password = click.option("--showPassword", "show", is_flag=True, help="Show passwords (super users only).")


_acl_options = option_set(
    click.option("-s", "--subject", required=True, help="User that the policy is for, as User:name."),
    click.option("-r", "--resources", required=True,
                 help="Resources, separated by commas: Topic:orders, Group:bill*, Cluster:*, or *."),
    click.option("-a", "--actions", required=True,
                 help="Actions, separated by commas: All, Pub, Sub, Create, Update, Delete, Get, List."),
    click.option("-i", "--sourceIp", "source_ips", help="Addresses and subnets of clients, separated by commas."),
    click.option("-d", "--decision", required=True, help="Allow or Deny."),
)  # fmt: skip
_copy_options = option_set(
    click.option("-f", "--fromBroker", "source", required=True, type=SERVER_ADDRESS, help="Broker to copy from."),
    click.option("-t", "--toBroker", "target", required=True, type=SERVER_ADDRESS, help="Broker to copy to."),
)


async def _change(admin: AdminClient, target: Target, change: Callable[[str], Awaitable[None]], done: str) -> None:
    """Apply `change` to one broker, or to every master and slave of a cluster."""
    addresses = await target.addresses(admin, masters_only=False)
    await ask_each(addresses, change, done=lambda address: f"{done} {address} success.")


def _parts(text: str | None) -> tuple[str, ...]:
    return tuple(part.strip() for part in (text or "").split(",") if part)


# Users


@admin_command("createUser")
@target_options()
@_username_option
@click.option("-p", "--password", required=True, help="The key that signs its requests.")
@click.option("-t", "--userType", "user_type", help="Super or Normal.  [default: Normal]")
async def create_user(
    admin: AdminClient, target: Target, username: str, password: str, user_type: str | None
) -> None:  # fmt: skip
    """Create a user."""
    user = UserInfo(username, password, user_type)
    await _change(admin, target, lambda address: admin.create_user(address, user), "create user to")


@admin_command("updateUser")
@target_options()
@_username_option
@click.option("-p", "--password", help="New password.")
@click.option("-t", "--userType", "user_type", help="Super or Normal.")
@click.option("-s", "--userStatus", "user_status", help="enable or disable.")
async def update_user(
    admin: AdminClient, target: Target, username: str, password: str | None, user_type: str | None,
    user_status: str | None,
) -> None:  # fmt: skip
    """Change the password, type or status of a user."""
    if not (password or user_type or user_status):
        raise click.UsageError("give one of -p, -t and -s")
    user = UserInfo(username, password, user_type, user_status)
    await _change(admin, target, lambda address: admin.update_user(address, user), "update user to")


@admin_command("deleteUser")
@target_options()
@_username_option
async def delete_user(admin: AdminClient, target: Target, username: str) -> None:
    """Delete a user."""
    await _change(admin, target, lambda address: admin.delete_user(address, username), "delete user to")


@admin_command("getUser")
@target_options()
@_username_option
@_show_password
@json_option
async def get_user(admin: AdminClient, target: Target, username: str, show: bool, as_json: bool) -> None:
    """Show a user."""

    def print_first(answers: dict[str, UserInfo | None]) -> None:
        _print_users([user for user in answers.values() if user is not None][:1], show, as_json)

    await ask_each(await target.addresses(admin), lambda address: admin.user(address, username), show=print_first)


@admin_command("listUser")
@target_options()
@click.option("-f", "--filter", "filter_", help="Only users whose names contain this.")
@_show_password
@json_option
async def list_user(admin: AdminClient, target: Target, filter_: str | None, show: bool, as_json: bool) -> None:
    """List the users."""

    def print_first(answers: dict[str, list[UserInfo]]) -> None:
        address, users = next(((address, users) for address, users in answers.items() if users), ("", []))
        _print_users(users, show, as_json)
        if target.cluster is not None and users and not as_json:
            click.echo(f"get user from {address} success.")

    await ask_each(await target.addresses(admin), lambda address: admin.users(address, filter_), show=print_first)


def _print_users(users: Sequence[UserInfo], show: bool, as_json: bool) -> None:
    rows = [
        (user.username, user.password if show else user.password and _HIDDEN, user.user_type, user.user_status)
        for user in users
    ]
    document = [dict(zip(("username", "password", "userType", "userStatus"), row, strict=True)) for row in rows]
    head = ("#UserName", "#Password", "#UserType", "#UserStatus")
    lines = [_USER % cells for cells in (head, *(tuple(map(java_form, row)) for row in rows))] if rows else []
    print_found(document, lines, as_json=as_json)


@admin_command("copyUser")
@_copy_options
@click.option("-u", "--usernames", "names", help="Only these, separated by commas.")
async def copy_user(admin: AdminClient, source: str, target: str, names: str | None) -> None:
    """Copy users from one broker to another one."""
    for name in await admin.copy_users(source, target, list(_parts(names))):
        click.echo(f"copy user of {name} from {source} to {target} success.")


# Acls


def _acl(subject: str, resources: str, actions: str, source_ips: str | None, decision: str) -> AclInfo:
    change = AclChange(subject, _parts(resources), _parts(actions), _parts(source_ips), decision)
    if not change.resources:
        raise CommandFailed("no resource given: use -r, as in -r Topic:orders")
    return change.info


@admin_command("createAcl")
@target_options()
@_acl_options
async def create_acl(admin: AdminClient, target: Target, **policy: Any) -> None:
    """Create the policies of a user."""
    acl = _acl(**policy)
    await _change(admin, target, lambda address: admin.create_acl(address, acl), "create acl to")


@admin_command("updateAcl")
@target_options()
@_acl_options
async def update_acl(admin: AdminClient, target: Target, **policy: Any) -> None:
    """Change the policies of a user."""
    acl = _acl(**policy)
    await _change(admin, target, lambda address: admin.update_acl(address, acl), "update acl to")


@admin_command("deleteAcl")
@target_options()
@click.option("-s", "--subject", required=True, help="Subject of the policy, as User:name.")
@click.option("-r", "--resources", "resource", help="Only for this resource; without it, for all.")
async def delete_acl(admin: AdminClient, target: Target, subject: str, resource: str | None) -> None:
    """Delete the policies of a user."""
    await _change(admin, target, lambda address: admin.delete_acl(address, subject, resource), "delete acl to")


@admin_command("getAcl")
@target_options()
@click.option("-s", "--subject", required=True, help="Subject of the policy, as User:name.")
@json_option
async def get_acl(admin: AdminClient, target: Target, subject: str, as_json: bool) -> None:
    """Show the policies of a user."""

    def show(answers: dict[str, AclInfo | None]) -> None:
        found = [acl for acl in answers.values() if acl is not None]
        print_found(found, _acl_lines(found), as_json=as_json)

    await ask_each(await target.addresses(admin), lambda address: admin.acl(address, subject), show=show)


@admin_command("listAcl")
@target_options()
@click.option("-s", "--subject", help="Only subjects that contain this.")
@click.option("-r", "--resource", help="Only resources that contain this.")
@json_option
async def list_acl(
    admin: AdminClient, target: Target, subject: str | None, resource: str | None, as_json: bool
) -> None:
    """List the policies of all users."""

    def show(answers: dict[str, list[AclInfo]]) -> None:
        found = [acl for acls in answers.values() for acl in acls]
        print_found(found, _acl_lines(found), as_json=as_json)

    await ask_each(await target.addresses(admin), lambda address: admin.acls(address, subject, resource), show=show)


def _acl_lines(acls: Sequence[AclInfo]) -> Iterator[str]:
    if acls:
        yield _ACL % ("#Subject", "#PolicyType", "#Resource", "#Actions", "#SourceIp", "#Decision")
    for acl in acls:
        if not acl.policies:
            yield _ACL % (acl.subject, "", "", "", "", "")
        for policy in acl.policies or ():
            for entry in policy.entries or ():
                cells = (policy.policy_type, entry.resource, entry.actions, entry.source_ips, entry.decision)
                yield _ACL % (acl.subject, *(java_form(cell) for cell in cells))


@admin_command("copyAcl")
@_copy_options
@click.option("-s", "--subjects", "names", help="Only policies of these subjects, separated by commas.")
async def copy_acl(admin: AdminClient, source: str, target: str, names: str | None) -> None:
    """Copy policies from one broker to another one."""
    for name in await admin.copy_acls(source, target, list(_parts(names))):
        click.echo(f"copy acl of {name} from {source} to {target} success.")
