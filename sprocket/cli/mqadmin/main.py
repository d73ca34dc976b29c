"""`mqadmin`: RocketMQ's admin command, with its own command names, flags and column layouts.

Source of names, flags, layouts: RocketMQ 5.3.3, package `org.apache.rocketmq.tools.command`.  Unlike RocketMQ's stack
trace and status 0, an error is one line on stderr and exit status 1.  ``--json`` is new.
"""

import click

from sprocket.cli.client_session import HELP
from sprocket.cli.mqadmin.auth import (
    copy_acl,
    copy_user,
    create_acl,
    create_user,
    delete_acl,
    delete_user,
    get_acl,
    get_user,
    list_acl,
    list_user,
    update_acl,
    update_user,
)
from sprocket.cli.mqadmin.broker import broker_status, cluster_list
from sprocket.cli.mqadmin.cleaning import clean_expired_cq, clean_unused_topic, delete_expired_commit_log
from sprocket.cli.mqadmin.cold import (
    get_cold_flow_info,
    remove_cold_flow_group,
    set_read_ahead_mode,
    update_cold_flow_group,
)
from sprocket.cli.mqadmin.connection import consumer_connection, consumer_status, producer, producer_connection
from sprocket.cli.mqadmin.consumer import consumer_progress, set_consume_mode
from sprocket.cli.mqadmin.controller_changes import clean_broker_metadata, elect_master, forget_controller
from sprocket.cli.mqadmin.controller_config import get_controller_config, update_controller_config
from sprocket.cli.mqadmin.controller_state import get_broker_epoch, get_controller_metadata, get_sync_state_set
from sprocket.cli.mqadmin.message import print_messages, query_by_id, query_by_key, query_by_offset, query_by_unique_key
from sprocket.cli.mqadmin.offset import (
    clone_group_offset,
    get_consumer_status,
    reset_offset_by_time,
    skip_accumulated_message,
)
from sprocket.cli.mqadmin.send import check_send_rt, consume_message, send_message
from sprocket.cli.mqadmin.stats import broker_consume_stats, query_cq, stats_all
from sprocket.cli.mqadmin.topic import delete_topic, topic_list, topic_route, topic_status, update_topic


@click.group(context_settings=HELP)
def main() -> None:
    """Administer a cluster: RocketMQ's command names and flags."""
    from sprocket.common.log_format import escape_unconfigured

    escape_unconfigured()


@main.command(name="help")
@click.argument("command", required=False)
@click.pass_context
def show_help(context: click.Context, command: str | None) -> None:
    """Show the flags of a command."""
    assert context.parent is not None
    if command is None:
        click.echo(main.get_help(context.parent))
        return
    found = main.get_command(context.parent, command)
    if found is None:
        raise click.UsageError(f"The sub command {command} not exist.")
    with click.Context(found, info_name=command, parent=context.parent) as own:
        click.echo(found.get_help(own))


for _command in (
    update_topic,
    delete_topic,
    topic_list,
    topic_route,
    topic_status,
    cluster_list,
    broker_status,
    consumer_progress,
    set_consume_mode,
    clean_expired_cq,
    delete_expired_commit_log,
    clean_unused_topic,
    set_read_ahead_mode,
    get_cold_flow_info,
    update_cold_flow_group,
    remove_cold_flow_group,
    query_by_id,
    query_by_key,
    query_by_unique_key,
    query_by_offset,
    print_messages,
    send_message,
    check_send_rt,
    consume_message,
    consumer_connection,
    producer_connection,
    producer,
    consumer_status,
    reset_offset_by_time,
    skip_accumulated_message,
    clone_group_offset,
    get_consumer_status,
    stats_all,
    broker_consume_stats,
    query_cq,
    create_user,
    update_user,
    delete_user,
    get_user,
    list_user,
    copy_user,
    create_acl,
    update_acl,
    delete_acl,
    get_acl,
    list_acl,
    copy_acl,
    get_controller_metadata,
    get_sync_state_set,
    get_broker_epoch,
    get_controller_config,
    update_controller_config,
    elect_master,
    clean_broker_metadata,
    forget_controller,
):
    main.add_command(_command)
