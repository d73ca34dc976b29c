"""`mqadmin`: RocketMQ's admin command, with its own command names, flags and column layouts.

Source of names, flags, layouts: RocketMQ 5.3.3, package `org.apache.rocketmq.tools.command`.  Unlike RocketMQ's stack
trace and status 0, an error is one line on stderr and exit status 1.  ``--json`` is new.
"""

from typing import Final

import click

from sprocket_cli.client_session import HELP
from sprocket_cli.lazy_group import LazyGroup
from sprocket_cli.mqadmin.absent import ABSENT

# The commands of each module of this folder, which is imported when one of them is asked for.
COMMANDS: Final[dict[str, tuple[str, ...]]] = {
    "auth": (
        "createUser", "updateUser", "deleteUser", "getUser", "listUser", "copyUser", "createAcl", "updateAcl",
        "deleteAcl", "getAcl", "listAcl", "copyAcl",
    ),
    "broker": ("clusterList", "brokerStatus"),
    "cleaning": ("cleanExpiredCQ", "deleteExpiredCommitLog", "cleanUnusedTopic"),
    "cold": (
        "setCommitLogReadAheadMode", "getColdDataFlowCtrInfo", "updateColdDataFlowCtrGroupConfig",
        "removeColdDataFlowCtrGroupConfig",
    ),
    "config": ("updateBrokerConfig", "getBrokerConfig", "getNamesrvConfig", "updateNamesrvConfig"),
    "consumer.connection": ("consumerConnection", "producerConnection", "producer", "consumerStatus"),
    "consumer.consumer": ("consumerProgress", "setConsumeMode"),
    "consumer.group": ("updateSubGroup", "updateSubGroupList", "deleteSubGroup", "getConsumerConfig"),
    "consumer.offset": ("resetOffsetByTime", "skipAccumulatedMessage", "cloneGroupOffset", "getConsumerStatus"),
    "controller.changes": ("electMaster", "cleanBrokerMetadata", "forgetController"),
    "controller.config": ("getControllerConfig", "updateControllerConfig"),
    "controller.state": ("getControllerMetaData", "getSyncStateSet", "getBrokerEpoch"),
    "controller.takeover": ("exportBrokerGroups", "importBrokerGroups"),
    "export": ("exportMetadata", "exportConfigs", "exportMetrics"),
    "lite": (
        "getBrokerLiteInfo", "getParentTopicInfo", "getLiteTopicInfo", "getLiteClientInfo", "getLiteGroupInfo",
        "triggerLiteDispatch",
    ),
    "message.compaction": ("dumpCompactionLog",),
    "message.query": (
        "queryMsgById", "queryMsgByKey", "queryMsgByUniqueKey", "queryMsgByOffset", "printMsg", "printMsgByQueue",
    ),
    "message.send": ("sendMessage", "checkMsgSendRT", "sendMsgStatus", "clusterRT", "consumeMessage"),
    "message.trace": ("queryMsgTraceById",),
    "monitor": ("startMonitoring",),
    "namesrv": ("updateKvConfig", "deleteKvConfig", "wipeWritePerm", "addWritePerm", "updateOrderConf"),
    "quota": ("updateQuota", "deleteQuota", "getQuota", "getQuotaUsage"),
    "replication": ("haStatus", "resetMasterFlushOffset"),
    "static_topic": ("updateStaticTopic", "remappingStaticTopic"),
    "stats": ("statsAll", "brokerConsumeStats", "queryCq"),
    "topic": (
        "updateTopic", "updateTopicList", "updateTopicPerm", "deleteTopic", "topicList", "topicRoute", "topicStatus",
        "topicClusterList", "allocateMQ",
    ),
}  # fmt: skip


class CommandGroup(LazyGroup):
    """Group whose commands are found in upper and lower case, as RocketMQ's are (`MQAdminStartup.findSubCommand`)."""

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return the command; None if there is none.  Raises UsageError for one that has no meaning here."""
        own = next((name for name in self.list_commands(ctx) if name.lower() == cmd_name.lower()), cmd_name)
        command = super().get_command(ctx, own)
        reason = next((text for name, text in ABSENT.items() if name.lower() == cmd_name.lower()), None)
        if command is None and reason is not None:
            raise click.UsageError(f"RocketMQ's command {cmd_name} does not exist here. {reason}")
        return command


_PLACES: Final = {name: f"sprocket_cli.mqadmin.{module}" for module, names in COMMANDS.items() for name in names}


@click.group(cls=CommandGroup, places=_PLACES, context_settings=HELP)
def main() -> None:
    """Administer a cluster: RocketMQ's command names and flags."""
    from sprocket_cli.terminal import protect_terminal

    protect_terminal()


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
    with click.Context(found, info_name=found.name, parent=context.parent) as own:
        click.echo(found.get_help(own))
