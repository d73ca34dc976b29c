"""`mqadmin` about what name servers keep: values by key, write permissions, the queues of ordered topics."""

import click

from sprocket.client.admin.admin_client import ORDER_TOPIC_NAMESPACE, AdminClient, AdminError
from sprocket_cli.client_session import CommandFailed, WrongUsage, json_option, print_found
from sprocket_cli.mqadmin.options import admin_command, topic_option

namespace_option = click.option("-s", "--namespace", required=True, help="Namespace of the key.")
key_option = click.option("-k", "--key", required=True, help="Key.")
broker_name_option = click.option("-b", "--brokerName", "broker_name", required=True, help="Broker name.")


@admin_command("updateKvConfig")
@namespace_option
@key_option
@click.option("-v", "--value", required=True, help="Value.")
async def update_kv_config(admin: AdminClient, namespace: str, key: str, value: str) -> None:
    """Set a value that the name servers keep."""
    await admin.put_kv_config(namespace, key, value)
    click.echo("create or update kv config to namespace success.")


@admin_command("deleteKvConfig")
@namespace_option
@key_option
async def delete_kv_config(admin: AdminClient, namespace: str, key: str) -> None:
    """Delete a value that the name servers keep."""
    await admin.delete_kv_config(namespace, key)
    click.echo("delete kv config from namespace success.")


@admin_command("wipeWritePerm")
@broker_name_option
@json_option
async def wipe_write_perm(admin: AdminClient, broker_name: str, as_json: bool) -> None:
    """Take the write permission from a broker's routes: producers stop to send to it."""
    _show_changed("wipe", broker_name, await admin.wipe_write_perm(broker_name), as_json)


@admin_command("addWritePerm")
@broker_name_option
@json_option
async def add_write_perm(admin: AdminClient, broker_name: str, as_json: bool) -> None:
    """Give the write permission back to a broker's routes."""
    _show_changed("add", broker_name, await admin.add_write_perm(broker_name), as_json)


def _show_changed(verb: str, broker_name: str, outcomes: dict[str, int | AdminError], as_json: bool) -> None:
    """Print the number of topics changed at each name server.  Raises CommandFailed if one refused."""
    changed = {address: outcome for address, outcome in outcomes.items() if isinstance(outcome, int)}
    lines = (
        f"{verb} write perm of broker[{broker_name}] in name server[{address}] "
        + (f"OK, {changed[address]}" if address in changed else "Failed")
        for address in outcomes
    )
    print_found(changed, lines, as_json=as_json)
    if len(changed) < len(outcomes):
        raise CommandFailed("; ".join(str(outcome) for outcome in outcomes.values() if isinstance(outcome, AdminError)))


@admin_command("updateOrderConf")
@topic_option
@click.option("-v", "--orderConf", "order_conf", default="", help="Queues of each broker: broker-a:8;broker-b:8.")
@click.option("-m", "--method", required=True, type=click.Choice(["put", "get", "delete"]), help="What to do.")
@json_option
async def update_order_conf(admin: AdminClient, topic: str, order_conf: str, method: str, as_json: bool) -> None:
    """Set, show or delete the number of queues that an ordered topic has on each broker."""
    if method == "put":
        if not order_conf:
            raise WrongUsage("please set orderConf with option -v.")
        await admin.put_kv_config(ORDER_TOPIC_NAMESPACE, topic, order_conf)
        click.echo(f"update orderConf success. topic=[{topic}], orderConf=[{order_conf}]")
    elif method == "delete":
        await admin.delete_kv_config(ORDER_TOPIC_NAMESPACE, topic)
        click.echo(f"delete orderConf success. topic=[{topic}]")
    else:
        found = await admin.kv_config(ORDER_TOPIC_NAMESPACE, topic)
        if not found:
            raise CommandFailed(f"topic {topic} has no orderConf")
        line = f"get orderConf success. topic=[{topic}], orderConf=[{found}] "
        print_found({"topic": topic, "orderConf": found}, [line], as_json=as_json)
