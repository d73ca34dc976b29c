"""Keys that no update request changes, each with the reason: docs/configuration.md shows them.

RocketMQ takes an update of every key but three, also where nothing reads the new value before a restart.
"""

from typing import Final

FIXED_KEYS: Final[dict[str, tuple[str, ...]]] = {
    "It guards the server: whoever may change configuration must not switch guards off.": (
        "aclEnable", "authenticationEnabled", "authenticationProvider", "authenticationMetadataProvider",
        "authenticationStrategy", "authenticationWhitelist", "authorizationEnabled", "authorizationProvider",
        "authorizationMetadataProvider", "authorizationStrategy", "authorizationWhitelist", "initAuthenticationUser",
        "innerClientAuthenticationCredentials", "migrateAuthFromV1Enabled", "authFailuresPerSecond",
        "authFailuresBurst", "auditAllowed", "auditLinesPerSecond", "authSecretKeyFile", "authSecretsInClear",
        "tls.server.certificate.as.user", "haSecretFile", "haAllowPlainPeers", "haAllowCleartext", "haSessionEnable",
    ),
    "It names a place: a remote request must not make the server read, write, listen or connect elsewhere.": (
        "storePathRootDir", "storePathCommitLog", "kvConfigPath", "authConfigPath", "tableTopicsConfigPath",
        "rocketmqHome", "bindAddress", "listenPort", "haListenPort", "namesrvAddr", "haMasterAddress",
    ),
    "It says who the broker is: clients, slaves, name servers and stored messages have it.": (
        "brokerName", "brokerClusterName", "brokerId", "brokerRole", "brokerIP1", "brokerIP2", "regionId",
    ),
    "Files are laid out by it: those that are there have the old form.": (
        "mappedFileSizeCommitLog", "mappedFileSizeConsumeQueue", "mapperFileSizeBatchConsumeQueue",
        "mappedFileSizeTimerLog", "maxHashSlotNum", "maxIndexNum", "timerPrecisionMs", "timerRollWindowSlot",
        "messageIndexEnable", "enableLmq", "enableMultiDispatch",
    ),
    "System topics are made of it at the start.": (
        "clusterTopicEnable", "brokerTopicEnable", "traceTopicEnable", "msgTraceTopicName", "reviveQueueNum",
        "timerWheelEnable",
    ),
    "Stored messages were numbered by it: another value would give them another time.": ("messageDelayLevel",),
    "It decides at the start which parts the broker has, and what they have promised.": (
        "flushDiskType", "enableSlaveActingMaster", "haAckFlushedOffset",
    ),
    "It is read once, at the start.": (
        "checkCRCOnRecover", "messageIndexSafe", "haTailRecoveryWait", "syncFromLastFile", "skipPreOnline",
        "serverSocketRcvBufSize", "serverSocketSndBufSize",
    ),
}  # fmt: skip
