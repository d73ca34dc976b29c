"""What RocketMQ's mqadmin and ours both run against the same servers: commands with arguments, and what may differ.

Words in braces stand for what a test knows: addresses, names, folders.  ``{who}`` is the tool that runs,
for what can be made only once.  Cases run in this order, each by both tools: a case may use what an earlier one made.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

# Names of the tools in what they make; of one length, so that columns stay.
THEIRS, OURS = "JavaTool", "OwnTools"
# Commands of RocketMQ 5.5.0 that 5.3.3 does not have.
NEWER: Final = {
    "getBrokerLiteInfo", "getParentTopicInfo", "getLiteTopicInfo", "getLiteClientInfo", "getLiteGroupInfo",
    "triggerLiteDispatch", "switchTimerEngine",
}  # fmt: skip
# What differs between two runs of one tool, wherever it stands.
TIME: Final = (r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(?:[,:.]\d{3})?", "<time>")
MILLIS: Final = (r"\b1\d{12}\b", "<ms>")
STAMP: Final = (r"\b20\d{15}\b", "<time>")
TPS: Final = (r"(?<=Consume TPS: )\d+\.\d\d$", "<tps>")
DISK_RATIOS: Final = ("commitLogDiskRatio", "consumeQueueDiskRatio")
# The epoch is a time, and RocketMQ calls the new plan of remappingStaticTopic the old one, too.
PLAN_FILE: Final = ((r"(?<=^The )(?:old|new)(?= mapping)", "<plan>"), (r"/\S+/(?=Static)", "<folder>/"), MILLIS)
# Ours has a folder for each user.
BODY_PATH: Final = ((r"/\S+/msgbodys/", "<folder>/"),)
# One tool elects the slave, the other one the old master.  RocketMQ's never shows the brokers, though it would.
ELECTED: Final = ((r"(?<=Addr\t)\S+", "<which>"), (r"(?<=Epoch\t)\d+", "<n>"))
Mask = tuple[str, str | Callable[[re.Match[str]], str]]


def _sorted_tracks(found: re.Match[str]) -> str:
    """Return the tracks of a line in the order of their groups."""
    return "]".join(sorted(found[0].split("]")))


def _sorted_queues(found: re.Match[str]) -> str:
    """Return the queues of a line in order: Java's come out of a hash table."""
    return "},{".join(sorted(found[0].split("},{")))


def _same_width(found: re.Match[str]) -> str:
    """Return a word as wide as the number and the blanks before it, so that columns are still compared."""
    return "<n>".rjust(len(found[0]))


def _without_numbers(found: re.Match[str]) -> str:
    """Return a name and its value without numbers: units and words are still compared."""
    return found[1] + re.sub(r"\d+(?:\.\d+)?(?:E-?\d+)?", "<n>", found[2])


# A number with decimals in a column; no address.
DECIMAL: Final = (r" +\d+\.\d+(?![\d.])", _same_width)
# Figures of a broker that change with the time, without any request.
STATUS: Final = (
    r"^((?:\S+:\d+ +)?(?:runtime|\w+Tps|\w+DiskRatio\S*|commitLogDirCapacity|putLatency\d+|remainHowManyDataToFlush|"
    r"haTransferredByteInSecond) *: )(.*)$",
    _without_numbers,
)


@dataclass(frozen=True)
class Case:
    """One command line for both.  `masks` replace what may differ; `any_order`: lines of a hash table of Java.

    `files`: what the command writes into {folder} is compared too, without `volatile` keys.  `only`: compare only the
    lines that match.  `settles`: all replicas are in sync before each tool runs.  `ours`: a flag for ours alone.
    """

    line: str
    masks: tuple[Mask, ...] = ()
    any_order: bool = False
    files: tuple[str, ...] = ()
    volatile: tuple[str, ...] = ()
    only: str = ""
    settles: bool = False
    ours: str = ""

    @property
    def command(self) -> str:
        """Name of the command."""
        return self.line.split()[0]

    def masked(self, output: str, only: str) -> list[str]:
        """Return the lines to compare."""
        lines = []
        for line in output.replace(THEIRS, "<who>").replace(OURS, "<who>").splitlines():
            for pattern, name in (TIME, *self.masks):
                line = re.sub(pattern, name, line)
            text = line.rstrip()
            if text.strip() and re.search(only, text):
                lines.append(text)
        return sorted(lines) if self.any_order else lines


GROUP_POLICY: Final = '{"type":"CUSTOMIZED","customizedRetryPolicy":{"next":[1000,5000]}}'

OPEN: Final = (
    # Topics
    Case("updateTopic -b {master} -t Made-{who} -r 3 -w 2"),
    Case("updateTopic -c {cluster} -t MadeOnAll -r 2 -w 2 -p 6"),
    Case("updateTopic -b {master} -t Typed-{who} -a +message.type=FIFO"),
    Case("updateTopicList -b {master} -f {topics}"),
    Case("updateTopicPerm -b {master} -t Made-{who} -p 4"),
    Case("updateTopicPerm -b {master} -t Made-{who} -p 4"),
    Case("updateTopicPerm -c {cluster} -t Made-{who} -p 6"),
    Case("topicList", any_order=True),
    Case("topicList -c", any_order=True),
    Case("topicRoute -t {topic}"),
    Case("topicRoute -t {topic} -l"),
    Case("topicStatus -t {topic}"),
    Case("topicClusterList -t {topic}"),
    Case("allocateMQ -t {topic} -i 10.0.0.1", masks=((r"(?<=\[\{).*(?=\}\])", _sorted_queues),)),
    Case("updateOrderConf -t Ordered -m put -v broker-a:4"),
    Case("updateTopic -b {master} -t Ordered -r 2 -w 2 -o true"),
    Case("updateOrderConf -t Ordered -m get"),
    Case("updateOrderConf -t Ordered -m delete"),
    Case("deleteTopic -c {cluster} -t Made-{who}"),
    Case("updateStaticTopic -b {broker} -t Static-{who} -qn 2", masks=PLAN_FILE),
    Case("updateStaticTopic -c {cluster} -t Static-{who} -qn 3", masks=PLAN_FILE),
    Case("remappingStaticTopic -b {broker} -t Static-{who}", masks=PLAN_FILE),
    Case("topicStatus -t Static-{who}", any_order=True),
    # Messages
    Case("sendMessage -t Sent-{who} -p hello -k k -c A -b {broker} -i 0", masks=((r"\b[0-9A-F]{32,}\b", "<id>"),)),
    Case("queryMsgById -t {topic} -i {offset_id}", masks=BODY_PATH, any_order=True),
    Case("queryMsgById -t {topic} -i {unique_id}", masks=BODY_PATH, any_order=True),
    Case("queryMsgByKey -t {topic} -k key-1"),
    Case("queryMsgByUniqueKey -t {topic} -i {unique_id}", masks=(*BODY_PATH, (r"^MessageTrack.*", _sorted_tracks))),
    Case("queryMsgByOffset -t {topic} -b {broker} -i 0 -o 1 -f UTF-8", masks=BODY_PATH, any_order=True),
    Case("queryMsgTraceById -i {unique_id}"),
    Case("printMsg -t {topic} -d true", any_order=True),
    Case("printMsgByQueue -t {topic} -a {broker} -i 0 -p true -d true"),
    Case("printMsgByQueue -t {topic} -a {broker} -i 0 -f true"),
    Case("consumeMessage -t {topic} -b {broker} -i 0 -o 0"),
    Case("printMsg -t {kinds} -d true"),
    Case("queryMsgByOffset -t {kinds} -b {broker} -i 0 -o 1", masks=BODY_PATH, any_order=True),
    Case("printMsg -t {batches} -d true"),
    Case("printMsg -t {split} -d true"),
    Case("queryMsgByKey -t {split} -k k1"),
    Case("queryCq -t {topic} -q 0 -i 0 -c 2 -b {master}"),
    Case("dumpCompactionLog"),
    Case("checkMsgSendRT -t {topic} -a 2 -s 10", masks=((r"(?<= )\d+$", "<ms>"), (r"(?<=: )\d+\.\d+$", "<mean>"))),
    Case("sendMsgStatus -b {broker} -c 2 -s 10", masks=(
        (r"rt=\d+ms", "rt=<ms>"), (r"\b[0-9A-F]{32,}\b", "<id>"), (r"queueOffset=\d+", "queueOffset=<n>"),
        (r"queueId=\d+", "queueId=<n>"),
    )),
    # Groups
    Case("updateSubGroup -b {master} -g G-{who} -r 3 -q 2 -s false -p " + GROUP_POLICY.replace(" ", "")),
    Case("updateSubGroup -c {cluster} -g GOnAll"),
    Case("updateSubGroupList -b {master} -f {groups}"),
    Case("getConsumerConfig -g G-{who}"),
    Case("deleteSubGroup -b {master} -g G-{who} -r true"),
    Case("setConsumeMode -b {master} -t {topic} -g {group} -m POP -q 2"),
    Case("setConsumeMode -c {cluster} -t {topic} -g {group} -m PULL"),
    Case("consumerProgress -g {group}", masks=(TPS,), any_order=True),
    Case("consumerProgress -g {group} -t {topic} -s true", masks=(TPS,), any_order=True),
    Case("consumerProgress", only=r"^(#|{group}\b)", any_order=True),
    Case("consumerConnection -g {online}", any_order=True),
    Case("consumerStatus -g {online}", masks=(MILLIS, STAMP), any_order=True),
    Case("consumerStatus -g {online} -i {client_id}", any_order=True, masks=(MILLIS, STAMP, DECIMAL)),
    Case("producerConnection -g {producers} -t {topic}", any_order=True),
    Case("producer -b {master}", any_order=True, only=r"\({producers}\)|group", masks=(MILLIS,)),
    Case("brokerConsumeStats -b {master}", only=r"^#|{topic}|Total", any_order=True),
    Case("resetOffsetByTime -g {group} -t {topic} -s 0", any_order=True),
    Case("resetOffsetByTime -g {group} -t {topic} -s 0 -b {master} -q 0 -o 1"),
    Case("skipAccumulatedMessage -g {group} -t {topic}", any_order=True),
    Case("cloneGroupOffset -s {group} -d {group}-{who} -t {topic}"),
    Case("statsAll -t {topic}", masks=(DECIMAL,), any_order=True),
    # Brokers
    Case("clusterList", masks=(DECIMAL,)),
    Case("clusterList -m"),
    Case("brokerStatus -b {master}", masks=(STATUS,), any_order=True),
    Case("brokerStatus -c {cluster}", masks=(STATUS,), any_order=True),
    Case("getBrokerConfig -b {master}", any_order=True),
    Case("getBrokerConfig -c {cluster}", any_order=True),
    Case("updateBrokerConfig -b {master} -k maxTransferCountOnMessageInMemory -v 32"),
    Case("updateBrokerConfig -c {cluster} -k maxTransferCountOnMessageInMemory -v 32 -a true", any_order=True),
    Case("cleanExpiredCQ -b {master}"),
    Case("cleanExpiredCQ -c {cluster}"),
    Case("deleteExpiredCommitLog -b {master}"),
    Case("deleteExpiredCommitLog -c {cluster}"),
    Case("cleanUnusedTopic -b {master}"),
    Case("cleanUnusedTopic -c {cluster}"),
    Case("haStatus -b {master}", masks=(DECIMAL,)),
    Case("haStatus -c {cluster}", masks=(DECIMAL,)),
    Case("haStatus -b {slave}", masks=((r"(?<=\t)\d+\.\d\d$", "<speed>"),)),
    Case("resetMasterFlushOffset -b {slave} -o 0"),
    Case("setCommitLogReadAheadMode -b {master} -m 0"),
    Case("setCommitLogReadAheadMode -c {cluster} -m 0", any_order=True),
    Case("updateColdDataFlowCtrGroupConfig -b {master} -g {group} -v 7654321"),
    Case("updateColdDataFlowCtrGroupConfig -c {cluster} -g {group} -v 7654321"),
    Case("getColdDataFlowCtrInfo -b {master}", any_order=True, masks=((r",$", ""),)),
    Case("getColdDataFlowCtrInfo -c {cluster}", any_order=True, masks=((r",$", ""),)),
    Case("removeColdDataFlowCtrGroupConfig -b {master} -g {group}"),
    Case("removeColdDataFlowCtrGroupConfig -c {cluster} -g {group}"),
    Case("exportConfigs -c {cluster} -f {folder}", files=("configs.json",)),
    Case("exportMetadata -c {cluster} -f {folder}", files=("metadata.json",), volatile=("exportTime",)),
    Case("exportMetadata -c {cluster} -f {folder} -t", files=("topic.json",), volatile=("exportTime",)),
    Case("exportMetadata -b {master} -f {folder} -g", files=("subscriptionGroup.json",)),
    Case("exportMetrics -c {cluster} -f {folder}", files=("metrics.json",), volatile=(*DISK_RATIOS, "rocketmqVersion")),
    # Name servers
    Case("getNamesrvConfig", any_order=True),
    Case("updateNamesrvConfig -k returnOrderTopicConfigToBroker -v true"),
    Case("updateKvConfig -s N -k k -v v"),
    Case("deleteKvConfig -s N -k k"),
    Case("wipeWritePerm -b {broker}"),
    Case("addWritePerm -b {broker}"),
    # Controllers
    Case("getControllerMetaData -a {controller}"),
    Case("getControllerConfig -a {controller}", any_order=True),
    Case("updateControllerConfig -a {controller} -k enableElectUncleanMaster -v false"),
    Case("getSyncStateSet -a {controller} -b {broker}"),
    Case("getSyncStateSet -a {controller} -c {cluster}"),
    Case("getBrokerEpoch -b {broker}", any_order=True),
    Case("getBrokerEpoch -c {cluster}", any_order=True),
    Case("cleanBrokerMetadata -a {controller} -b {lost_id} -bn {broker} -c {cluster}"),
    Case(
        "electMaster -a {controller} -b {elected_id} -bn {broker} -c {cluster}", settles=True, masks=ELECTED, only="^#"
    ),
)  # fmt: skip

# On a broker that asks for users: others tell no passwords, which the copies need.
GUARDED: Final = (
    # RocketMQ's fails in a cluster with slaves: it deletes topics on them too.
    Case("deleteSubGroup -c {cluster} -g GOnAll-{who}"),
    Case("createUser -b {master} -u user-{who} -p secret-of-user -t Normal"),
    Case("createUser -c {cluster} -u more-{who} -p secret-of-user"),
    Case("updateUser -b {master} -u user-{who} -s disable"),
    Case("updateUser -c {cluster} -u user-{who} -s enable"),
    Case("getUser -b {master} -u user-{who}", ours="--showPassword"),
    Case("getUser -c {cluster} -u user-{who}", ours="--showPassword"),
    Case("listUser -b {master} -f user-{who}", ours="--showPassword"),
    Case("listUser -c {cluster} -f user-{who}", ours="--showPassword"),
    Case("copyUser -f {master} -t {master} -u user-{who}"),
    Case("createAcl -b {master} -s User:user-{who} -r Topic:T*,Group:G* -a Pub,Sub -i 10.0.0.0/8,127.0.0.1 -d Allow"),
    Case("createAcl -c {cluster} -s User:more-{who} -r Cluster:* -a Get -d Deny"),
    Case("updateAcl -b {master} -s User:user-{who} -r Topic:T* -a All -d Deny"),
    Case("updateAcl -c {cluster} -s User:user-{who} -r Topic:U* -a Create,Update,Delete,Get,List -d Allow"),
    Case("getAcl -b {master} -s User:user-{who}"),
    Case("getAcl -c {cluster} -s User:user-{who}"),
    Case("listAcl -b {master} -s user-{who}"),
    Case("listAcl -c {cluster} -s user-{who} -r Topic"),
    Case("copyAcl -f {master} -t {master} -s User:user-{who}"),
    Case("deleteAcl -b {master} -s User:user-{who} -r Topic:T*"),
    Case("deleteAcl -c {cluster} -s User:user-{who}"),
    Case("deleteUser -b {master} -u user-{who}"),
    Case("deleteUser -c {cluster} -u more-{who}"),
)


def _same_width_left(found: re.Match[str]) -> str:
    """Return a word as wide as the number and the blanks after it, so that columns are still compared."""
    return "<ms>".ljust(len(found[0]))


# Commands that report until they are interrupted, each with a pattern for the last line of its first report.
ENDLESS: Final = (
    (Case("clusterRT -c {cluster} -a 3 -s 10", masks=((r"\b\d+\.\d\d +", _same_width_left),)), r"^{cluster} "),
    (Case("clusterRT -a 2 -p true -m room", masks=((r"(?<=\|)\d+$", "<ms>"),)), r"\|{broker}\|"),
    # RocketMQ's has a consumer itself, which reads OFFSET_MOVED_EVENT.
    (
        Case("startMonitoring", masks=((r"\b\d+ms$", "<ms>"),), only="^(?!.*__MONITOR_CONSUMER)", any_order=True),
        r"\[MONITOR\] =+endRound",
    ),
)
