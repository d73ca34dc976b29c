"""`mqadmin` about what name servers keep: values by key, write permissions, the queues of ordered topics."""

from typing import TYPE_CHECKING

import click

from sprocket_cli.client_session import CommandFailed, WrongUsage, admin_command, json_option, print_json, with_admin
from sprocket_cli.mqadmin.options import topic_option

if TYPE_CHECKING:
    from sprocket.client.admin.admin_client import AdminClient, AdminError

namespace_option = click.option("-s", "--namespace", required=True, help="Namespace of the key.")
key_option = click.option("-k", "--key", required=True, help="Key.")
broker_name_option = click.option("-b", "--brokerName", "broker_name", required=True, help="Broker name.")


@admin_command("updateKvConfig")
@namespace_option
@key_option
@click.option("-v", "--value", required=True, help="Value.")
def update_kv_config(namesrv: str | None, namespace: str, key: str, value: str) -> None:
    """Set a value that the name servers keep."""
    with_admin(namesrv, lambda admin: admin.put_kv_config(namespace.strip(), key.strip(), value.strip()))
    click.echo("create or update kv config to namespace success.")


@admin_command("deleteKvConfig")
@namespace_option
@key_option
def delete_kv_config(namesrv: str | None, namespace: str, key: str) -> None:
    """Delete a value that the name servers keep."""
    with_admin(namesrv, lambda admin: admin.delete_kv_config(namespace.strip(), key.strip()))
    click.echo("delete kv config from namespace success.")


@admin_command("wipeWritePerm")
@broker_name_option
@json_option
def wipe_write_perm(namesrv: str | None, broker_name: str, as_json: bool) -> None:
    """Take the write permission from a broker's routes: producers stop to send to it."""
    broker_name = broker_name.strip()
    outcomes = with_admin(namesrv, lambda admin: admin.wipe_write_perm(broker_name))
    _show_changed("wipe", broker_name, outcomes, as_json)


@admin_command("addWritePerm")
@broker_name_option
@json_option
def add_write_perm(namesrv: str | None, broker_name: str, as_json: bool) -> None:
    """Give the write permission back to a broker's routes."""
    broker_name = broker_name.strip()
    outcomes = with_admin(namesrv, lambda admin: admin.add_write_perm(broker_name))
    _show_changed("add", broker_name, outcomes, as_json)


def _show_changed(verb: str, broker_name: str, outcomes: "dict[str, int | AdminError]", as_json: bool) -> None:
    """Print the number of topics changed at each name server.  Raises CommandFailed if one refused."""
    failed = [str(outcome) for outcome in outcomes.values() if not isinstance(outcome, int)]
    if as_json:
        print_json({address: outcome for address, outcome in outcomes.items() if isinstance(outcome, int)})
    for address, outcome in {} if as_json else outcomes.items():
        ended = f"OK, {outcome}" if isinstance(outcome, int) else "Failed"
        click.echo(f"{verb} write perm of broker[{broker_name}] in name server[{address}] {ended}")
    if failed:
        raise CommandFailed("; ".join(failed))


@admin_command("updateOrderConf")
@topic_option
@click.option("-v", "--orderConf", "order_conf", default="", help="Queues of each broker: broker-a:8;broker-b:8.")
@click.option("-m", "--method", required=True, type=click.Choice(["put", "get", "delete"]), help="What to do.")
@json_option
def update_order_conf(namesrv: str | None, topic: str, order_conf: str, method: str, as_json: bool) -> None:
    """Set, show or delete the number of queues that an ordered topic has on each broker."""
    topic, order_conf = topic.strip(), order_conf.strip()
    if method == "put" and not order_conf:
        raise WrongUsage("please set orderConf with option -v.")

    async def work(admin: "AdminClient") -> str:
        from sprocket.client.admin.admin_client import ORDER_TOPIC_NAMESPACE as NAMESPACE

        if method == "put":
            await admin.put_kv_config(NAMESPACE, topic, order_conf)
            return f"update orderConf success. topic=[{topic}], orderConf=[{order_conf}]"
        if method == "delete":
            await admin.delete_kv_config(NAMESPACE, topic)
            return f"delete orderConf success. topic=[{topic}]"
        found = await admin.kv_config(NAMESPACE, topic)
        if not found:
            raise CommandFailed(f"topic {topic} has no orderConf")
        return found

    done = with_admin(namesrv, work)
    if method == "get" and as_json:
        print_json({"topic": topic, "orderConf": done})
    elif method == "get":
        click.echo(f"get orderConf success. topic=[{topic}], orderConf=[{done}] ")
    else:
        click.echo(done)
