"""`mqadmin` about users and policies.

Source of flags, columns and output: RocketMQ 5.3.3, `tools.command.auth`.  Unlike RocketMQ's, getUser and listUser show
a password only with ``--showPassword``.
"""

from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from sprocket_cli.client_session import (
    SERVER_ADDRESS,
    CommandFailed,
    admin_command,
    json_option,
    print_found,
    with_admin,
)
from sprocket_cli.mqadmin.options import Target, ask_each, target_options

if TYPE_CHECKING:
    from sprocket.client.admin.admin_client import AdminClient
    from sprocket.remoting.bodies.auth import AclInfo, UserInfo

_USER: Final = "%-16s  %-22s  %-22s  %-22s"
_ACL: Final = "%-16s  %-10s  %-22s  %-20s  %-24s  %-10s"
_HIDDEN: Final = "******"
F = TypeVar("F", bound=Callable[..., Any])
Change = Callable[["AdminClient", str], Awaitable[None]]


def _acl_options(command: F) -> F:
    """Add the options that describe a policy."""
    for flags, help_, is_required in reversed((
        (("-s", "--subject"), "User that the policy is for, as User:name.", True),
        (("-r", "--resources"), "Resources, separated by commas: Topic:orders, Group:bill*, Cluster:*, or *.", True),
        (("-a", "--actions"), "Actions, separated by commas: All, Pub, Sub, Create, Update, Delete, Get, List.", True),
        (("-i", "--sourceIp", "source_ips"), "Addresses and subnets of clients, separated by commas.", False),
        (("-d", "--decision"), "Allow or Deny.", True),
    )):  # fmt: skip
        command = click.option(*flags, required=is_required, help=help_)(command)
    return command


def _change(namesrv: str | None, target: Target, change: Change, done: str) -> None:
    """Apply `change` to one broker, or to every master and slave of a cluster."""
    ask_each(namesrv, target, change, masters_only=False, done=lambda address: f"{done} {address} success.")


def _parts(text: str | None) -> tuple[str, ...]:
    return tuple(part.strip() for part in (text or "").split(",") if part)


# Users


@admin_command("createUser")
@target_options()
@click.option("-u", "--username", required=True, help="Name of the user.")
@click.option("-p", "--password", required=True, help="The key that signs its requests.")
@click.option("-t", "--userType", "user_type", help="Super or Normal.  [default: Normal]")
def create_user(namesrv: str | None, target: Target, username: str, password: str, user_type: str | None) -> None:
    """Create a user."""
    from sprocket.remoting.bodies.auth import UserInfo

    user = UserInfo(username.strip(), password.strip(), user_type and user_type.strip())
    _change(namesrv, target, lambda admin, address: admin.create_user(address, user), "create user to")


@admin_command("updateUser")
@target_options()
@click.option("-u", "--username", required=True, help="Name of the user.")
@click.option("-p", "--password", help="New password.")
@click.option("-t", "--userType", "user_type", help="Super or Normal.")
@click.option("-s", "--userStatus", "user_status", help="enable or disable.")
def update_user(
    namesrv: str | None,
    target: Target,
    username: str,
    password: str | None,
    user_type: str | None,
    user_status: str | None,
) -> None:
    """Change the password, type or status of a user."""
    from sprocket.remoting.bodies.auth import UserInfo

    if not (password or user_type or user_status):
        raise click.UsageError("give one of -p, -t and -s")
    said = (word and word.strip() for word in (password, user_type, user_status))
    user = UserInfo(username.strip(), *said)
    _change(namesrv, target, lambda admin, address: admin.update_user(address, user), "update user to")


@admin_command("deleteUser")
@target_options()
@click.option("-u", "--username", required=True, help="Name of the user.")
def delete_user(namesrv: str | None, target: Target, username: str) -> None:
    """Delete a user."""
    name = username.strip()
    _change(namesrv, target, lambda admin, address: admin.delete_user(address, name), "delete user to")


_show_password = click.option("--showPassword", "show", is_flag=True, help="Show passwords (super users only).")


@admin_command("getUser")
@target_options()
@click.option("-u", "--username", required=True, help="Name of the user.")
@_show_password
@json_option
def get_user(namesrv: str | None, target: Target, username: str, show: bool, as_json: bool) -> None:
    """Show a user."""
    name = username.strip()

    def print_first(answers: "dict[str, UserInfo | None]") -> None:
        _print_users([user for user in answers.values() if user is not None][:1], show, as_json)

    ask_each(namesrv, target, lambda admin, address: admin.user(address, name), show=print_first)


@admin_command("listUser")
@target_options()
@click.option("-f", "--filter", "filter_", help="Only users whose names contain this.")
@_show_password
@json_option
def list_user(namesrv: str | None, target: Target, filter_: str | None, show: bool, as_json: bool) -> None:
    """List the users."""
    wanted = filter_ and filter_.strip()

    def print_first(answers: "dict[str, list[UserInfo]]") -> None:
        address, users = next(((address, users) for address, users in answers.items() if users), ("", []))
        _print_users(users, show, as_json)
        if target.cluster is not None and users and not as_json:
            click.echo(f"get user from {address} success.")

    ask_each(namesrv, target, lambda admin, address: admin.users(address, wanted), show=print_first)


def _print_users(users: "Sequence[UserInfo]", show: bool, as_json: bool) -> None:
    rows = [
        (user.username, user.password if show else user.password and _HIDDEN, user.user_type, user.user_status)
        for user in users
    ]
    document = [dict(zip(("username", "password", "userType", "userStatus"), row, strict=True)) for row in rows]
    head = ("#UserName", "#Password", "#UserType", "#UserStatus")
    lines = [_USER % cells for cells in (head, *(tuple(map(_java, row)) for row in rows))] if rows else []
    print_found(document, lines, as_json=as_json)


@admin_command("copyUser")
@click.option("-f", "--fromBroker", "source", required=True, type=SERVER_ADDRESS, help="Broker to copy from.")
@click.option("-t", "--toBroker", "target", required=True, type=SERVER_ADDRESS, help="Broker to copy to.")
@click.option("-u", "--usernames", help="Only these, separated by commas.")
def copy_user(namesrv: str | None, source: str, target: str, usernames: str | None) -> None:
    """Copy users from one broker to another one."""
    names = list(_parts(usernames))
    _copy(namesrv, source, target, "user", lambda admin: admin.copy_users(source.strip(), target.strip(), names))


# Acls


def _put_acl(namesrv: str | None, target: Target, is_new: bool, *written: str | None) -> None:
    from sprocket.client.admin.auth_requests import AclChange

    subject, resources, actions, source_ips, decision = written
    change = AclChange(
        (subject or "").strip(), _parts(resources), _parts(actions), _parts(source_ips), (decision or "").strip()
    )
    if not change.resources:
        raise CommandFailed("no resource given: use -r, as in -r Topic:orders")

    def put(admin: "AdminClient", address: str) -> Awaitable[None]:
        return (admin.create_acl if is_new else admin.update_acl)(address, change.info)

    _change(namesrv, target, put, f"{'create' if is_new else 'update'} acl to")


@admin_command("createAcl")
@target_options()
@_acl_options
def create_acl(
    namesrv: str | None, target: Target,
    subject: str, resources: str, actions: str, source_ips: str | None, decision: str,
) -> None:  # fmt: skip
    """Create the policies of a user."""
    _put_acl(namesrv, target, True, subject, resources, actions, source_ips, decision)


@admin_command("updateAcl")
@target_options()
@_acl_options
def update_acl(
    namesrv: str | None, target: Target,
    subject: str, resources: str, actions: str, source_ips: str | None, decision: str,
) -> None:  # fmt: skip
    """Change the policies of a user."""
    _put_acl(namesrv, target, False, subject, resources, actions, source_ips, decision)


@admin_command("deleteAcl")
@target_options()
@click.option("-s", "--subject", required=True, help="Subject of the policy, as User:name.")
@click.option("-r", "--resources", "resource", help="Only for this resource; without it, for all.")
def delete_acl(namesrv: str | None, target: Target, subject: str, resource: str | None) -> None:
    """Delete the policies of a user."""
    whose, what = subject.strip(), resource and resource.strip()
    _change(namesrv, target, lambda admin, address: admin.delete_acl(address, whose, what), "delete acl to")


@admin_command("getAcl")
@target_options()
@click.option("-s", "--subject", required=True, help="Subject of the policy, as User:name.")
@json_option
def get_acl(namesrv: str | None, target: Target, subject: str, as_json: bool) -> None:
    """Show the policies of a user."""

    def show(answers: "dict[str, AclInfo | None]") -> None:
        found = [acl for acl in answers.values() if acl is not None]
        print_found(found, _acl_lines(found), as_json=as_json)

    ask_each(namesrv, target, lambda admin, address: admin.acl(address, subject.strip()), show=show)


@admin_command("listAcl")
@target_options()
@click.option("-s", "--subject", help="Only subjects that contain this.")
@click.option("-r", "--resource", help="Only resources that contain this.")
@json_option
def list_acl(
    namesrv: str | None, target: Target, subject: str | None, resource: str | None,
    as_json: bool,
) -> None:  # fmt: skip
    """List the policies of all users."""

    def show(answers: "dict[str, list[AclInfo]]") -> None:
        found = [acl for acls in answers.values() for acl in acls]
        print_found(found, _acl_lines(found), as_json=as_json)

    ask_each(namesrv, target, lambda admin, address: admin.acls(address, subject, resource), show=show)


def _acl_lines(acls: "Sequence[AclInfo]") -> Iterator[str]:
    if acls:
        yield _ACL % ("#Subject", "#PolicyType", "#Resource", "#Actions", "#SourceIp", "#Decision")
    for acl in acls:
        if not acl.policies:
            yield _ACL % (acl.subject, "", "", "", "", "")
        for policy in acl.policies or ():
            for entry in policy.entries or ():
                cells = (policy.policy_type, entry.resource, entry.actions, entry.source_ips, entry.decision)
                yield _ACL % (acl.subject, *(_java(cell) for cell in cells))


@admin_command("copyAcl")
@click.option("-f", "--fromBroker", "source", required=True, type=SERVER_ADDRESS, help="Broker to copy from.")
@click.option("-t", "--toBroker", "target", required=True, type=SERVER_ADDRESS, help="Broker to copy to.")
@click.option("-s", "--subjects", help="Only policies of these subjects, separated by commas.")
def copy_acl(namesrv: str | None, source: str, target: str, subjects: str | None) -> None:
    """Copy policies from one broker to another one."""
    keys = list(_parts(subjects))
    _copy(namesrv, source, target, "acl", lambda admin: admin.copy_acls(source.strip(), target.strip(), keys))


def _copy(
    namesrv: str | None, source: str, target: str, what: str, copy: "Callable[[AdminClient], Awaitable[list[str]]]"
) -> None:
    for name in with_admin(namesrv, copy):
        click.echo(f"copy {what} of {name} from {source.strip()} to {target.strip()} success.")


def _java(cell: str | list[str] | None) -> str:
    """Return `cell` as Java prints it."""
    if isinstance(cell, list):
        return f"[{', '.join(cell)}]"
    return "null" if cell is None else cell
