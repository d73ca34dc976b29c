"""Reasons why keys need a restart; docs/configuration.md shows them.  A key that is not listed is read at the start.

RocketMQ accepts an update of every key except three, even if nothing reads the new value before a restart.
"""

from typing import Final

FIXED_KEYS: Final[dict[str, tuple[str, ...]]] = {
    "Protects the server: the right to change configuration must not include the right to turn protection off.": (
        "aclEnable", "authenticationEnabled", "authenticationProvider", "authenticationMetadataProvider",
        "authenticationStrategy", "authenticationWhitelist", "authorizationEnabled", "authorizationProvider",
        "authorizationMetadataProvider", "authorizationStrategy", "authorizationWhitelist", "initAuthenticationUser",
        "innerClientAuthenticationCredentials", "migrateAuthFromV1Enabled", "authFailuresPerSecond",
        "authFailuresBurst", "auditAllowed", "auditLinesPerSecond", "authSecretKeyFile", "authSecretsInClear",
        "tls.server.certificate.as.user", "haSecretFile", "haAllowPlainPeers", "haAllowCleartext", "haSessionEnable",
    ),
    "Names a place: a remote request must not make the server read, write, listen or connect elsewhere.": (
        "storePathRootDir", "storePathCommitLog", "kvConfigPath", "authConfigPath", "tableTopicsConfigPath",
        "replicationConfigPath",
        "controllerStorePath", "controllerRaftPortOffset", "storePathEpochFile",
        "metricsPromExporterPort", "metricsPromExporterHost", "metricsGrpcExporterTarget",
        "rocketmqHome", "bindAddress", "listenPort", "haListenPort", "namesrvAddr", "haMasterAddress",
        "controllerAddr", "fetchControllerAddrByDnsLookup", "storePathBrokerIdentity", "dLegerPeers",
        "dLegerRaftPortOffset", "logFile",
    ),
    "Identifies the broker: clients, slaves, name servers and stored messages hold the value.": (
        "brokerName", "brokerClusterName", "brokerId", "brokerRole", "brokerIP1", "brokerIP2", "regionId",
        "dLegerGroup", "dLegerSelfId",
    ),
    "Identifies the controller: brokers and the other controllers hold the value.": (
        "controllerDLegerGroup", "controllerDLegerPeers", "controllerDLegerSelfId",
    ),
    "Sets the layout of files: existing files have the old layout.": (
        "mappedFileSizeCommitLog", "mappedFileSizeConsumeQueue", "mapperFileSizeBatchConsumeQueue",
        "mappedFileSizeTimerLog", "maxHashSlotNum", "maxIndexNum", "timerPrecisionMs", "timerRollWindowSlot",
        "messageIndexEnable", "enableLmq", "enableMultiDispatch",
    ),
    "Creates system topics at the start.": (
        "clusterTopicEnable", "brokerTopicEnable", "traceTopicEnable", "msgTraceTopicName", "reviveQueueNum",
        "timerWheelEnable",
    ),
    "Stored messages hold levels: a new value would change their times.": ("messageDelayLevel",),
    "Selects the broker's parts and their guarantees at the start.": (
        "flushDiskType", "enableSlaveActingMaster", "haAckFlushedOffset", "enableControllerInNamesrv", "controllerType",
        "enableDLegerCommitLog", "preferredLeaderId",
    ),
}  # fmt: skip
READ_ONCE: Final = "Is read once, at the start."
