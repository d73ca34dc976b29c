"""`sprocket namespace`: accounts in a namespace, what it may have, and what it has."""

from typing import TYPE_CHECKING, Any, Final

import click
import msgspec

from sprocket.remoting.message.message_type import MessageType
from sprocket_cli.ask_each import ask_each
from sprocket_cli.client_session import HELP, CommandFailed, admin_session, json_option, print_found
from sprocket_cli.columns import fitted
from sprocket_cli.commands.masters import at_masters, change_at_masters, cluster_option, master_addresses

if TYPE_CHECKING:
    from sprocket.client.admin.admin_client import AdminClient
    from sprocket.remoting.bodies.namespace import NamespacePolicy, NamespaceUse

_AMOUNT: Final = click.IntRange(min=0)
_ACTIONS: Final = ("All", "Pub", "Sub", "Create", "Update", "Delete", "Get", "List")
_password_option = click.option(
    "--password", prompt=True, hide_input=True, confirmation_prompt=True, envvar="SPROCKET_ACCOUNT_PASSWORD",
    show_envvar=True, help="Password of the account; asked for without it.",
)  # fmt: skip


@click.group(context_settings=HELP)
def namespace() -> None:
    """Make namespaces and accounts in them, set what they may have, and show what they have."""


@namespace.command("create")
@click.argument("name")
@click.option("--admin", "user", default="admin", show_default=True, help="Account that may do all in the namespace.")
@_password_option
@cluster_option
@admin_session
async def create(admin: "AdminClient", name: str, user: str, password: str, cluster: str) -> None:
    """Make namespace NAME, ORDERS or TENANT|ORDERS, and its administrator's account NAME%admin."""
    await _give_account(admin, cluster, name, user, password, ("All",))
    click.echo(f"namespace {name}: {_whole(name, user)} is its administrator")


@namespace.command("account")
@click.argument("name")
@click.argument("user")
@click.option("--action", "actions", type=click.Choice(_ACTIONS), multiple=True, default=("Pub", "Sub"),
              show_default=True, help="What it may do in the namespace; repeatable.")  # fmt: skip
@_password_option
@cluster_option
@admin_session
async def account(
    admin: "AdminClient", name: str, user: str, actions: tuple[str, ...], password: str, cluster: str
) -> None:
    """Make account NAME%USER, or change its password and rights.  The administrator of the namespace may do it."""
    await _give_account(admin, cluster, name, user, password, actions)
    click.echo(f"namespace {name}: {_whole(name, user)} may {', '.join(actions)}")


async def _give_account(
    admin: "AdminClient", cluster: str, name: str, user: str, password: str, actions: tuple[str, ...]
) -> None:
    """Make an account at all name servers and masters.  A second call finishes what a failed one left.

    Raises CommandFailed without a master, before anything is made.
    """
    from sprocket.remoting.bodies.auth import AclInfo, PolicyEntryInfo, PolicyInfo, UserInfo
    from sprocket.remoting.message.namespaces import namespace_problem

    problem = namespace_problem(name)
    if problem is not None:
        raise CommandFailed(problem)
    whole = _whole(name, user)
    entry = PolicyEntryInfo(f"Namespace:{name}", list(actions), None, "Allow")
    acl = AclInfo(f"User:{whole}", [PolicyInfo(None, [entry])])

    async def give(server: str) -> None:
        known = await admin.user(server, whole)
        info = UserInfo(whole, password)
        await (admin.create_user(server, info) if known is None else admin.update_user(server, info))
        await admin.update_acl(server, acl)

    await ask_each([*admin.name_servers, *await master_addresses(admin, cluster)], give)


def _whole(name: str, user: str) -> str:
    from sprocket.remoting.message.namespaces import with_namespace

    return with_namespace(name, user)


@namespace.command("limits")
@click.argument("name")
@click.option("--max-topics", type=_AMOUNT, default=0, help="Topics, without those of retries and dead letters.")
@click.option("--max-queues", type=_AMOUNT, default=0, help="Queues of each topic at a broker.")
@click.option("--max-groups", type=_AMOUNT, default=0, help="Consumer groups.")
@click.option("--max-connections", type=_AMOUNT, default=0, help="Connections of producers and consumers to a broker.")
@click.option("--max-message-bytes", type=_AMOUNT, default=0, help="Bytes of a body as it is sent.")
@click.option("--message-type", "message_types", type=click.Choice(list(MessageType)), multiple=True,
              help="Type of topics and messages that is allowed; repeatable.")  # fmt: skip
@click.option("--retention-hours", type=_AMOUNT, default=0, help="Hours for which consumers may read a message.")
@click.option("--retention-bytes", type=_AMOUNT, default=0, help="Newest bytes of a queue that consumers may read.")
@click.option("--topic-queues", type=_AMOUNT, default=0, help="Queues of a topic that its first send creates.")
@click.option("--topic-attribute", "attributes", multiple=True, metavar="NAME=VALUE",
              help="Attribute of new topics, such as message.type=FIFO; repeatable.")  # fmt: skip
@cluster_option
@admin_session
async def limits(admin: "AdminClient", name: str, attributes: tuple[str, ...], cluster: str, **values: Any) -> None:
    """Set what namespace NAME may have at each master, in place of what was set; 0 is no limit."""
    from sprocket.remoting.bodies.namespace import NamespacePolicy

    template = dict(one.partition("=")[::2] for one in attributes)
    wanted = NamespacePolicy(name=name, topic_attributes=template, **values)
    done = f"the limits of namespace {name} are set"
    await change_at_masters(admin, cluster, lambda address: admin.set_namespace(address, wanted), done)


@namespace.command("delete")
@click.argument("name")
@cluster_option
@admin_session
async def delete(admin: "AdminClient", name: str, cluster: str) -> None:
    """Delete the limits of namespace NAME.  Its topics, groups and accounts stay."""
    done = f"the limits of namespace {name} are deleted"
    await change_at_masters(admin, cluster, lambda address: admin.delete_namespace(address, name), done)


@namespace.command("list")
@cluster_option
@json_option
@admin_session
async def list_namespaces(admin: "AdminClient", cluster: str, as_json: bool) -> None:
    """List the namespaces at each master: those that have a topic, a group or limits."""
    await at_masters(admin, cluster, admin.namespaces, lambda found: _print(found, as_json))


@namespace.command("show")
@click.argument("name")
@cluster_option
@json_option
@admin_session
async def show(admin: "AdminClient", name: str, cluster: str, as_json: bool) -> None:
    """Show what namespace NAME has at each master, and may have."""

    def print_own(found: "dict[str, dict[str, NamespaceUse]]") -> None:
        own = {address: {name: uses[name]} for address, uses in found.items() if name in uses}
        if not own:
            raise CommandFailed(f"no master knows a namespace {name}: it has no topic, no group and no limits there")
        _print(own, as_json)

    await at_masters(admin, cluster, admin.namespaces, print_own)


def _print(found: "dict[str, dict[str, NamespaceUse]]", as_json: bool) -> None:
    rows = [
        (use.name, address, use.topics, use.groups, use.connections, _limits(use.policy))
        for address, uses in found.items()
        for use in uses.values()
    ]
    lines = fitted(("namespace", "master", "topics", "groups", "connections", "limits"), sorted(rows))
    print_found(found, lines, as_json=as_json)


def _limits(policy: "NamespacePolicy | None") -> str:
    """Return the limits of a namespace as text."""
    if policy is None:
        return "none"
    parts = []
    for name, value in msgspec.to_builtins(policy).items():
        if isinstance(value, dict):
            parts += [f"{name}.{key}={text}" for key, text in value.items()]
        elif value and name != "name":
            parts.append(f"{name}={value if isinstance(value, int) else '|'.join(value)}")
    return " ".join(parts) or "none"
