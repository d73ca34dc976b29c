"""Request codes of RocketMQ that Sprocket does not serve, each with its reason.

docs/compatibility.md shows the reasons.  Tests compare the table with the routes of broker, name server, controller and
client.  Remove a code from this table when it gets a route.
"""

from collections.abc import Iterable
from typing import Final

from sprocket.remoting.codes import RequestCode as Code


def _by_reason(*groups: tuple[str, Iterable[Code]]) -> dict[Code, str]:
    return {code: reason for reason, codes in groups for code in codes}


UNSUPPORTED: Final = _by_reason(
    ("Moves the records of pop out of RocksDB, which Sprocket does not use.", (Code.POP_ROLLBACK,)),
    (
        "Controllers of RocketMQ's jRaft kind send it to each other; those of its DLedger kind do not serve it either.",
        (
            Code.BROKER_CLOSE_CHANNEL_REQUEST, Code.CHECK_NOT_ACTIVE_BROKER_REQUEST,
            Code.GET_BROKER_LIVE_INFO_REQUEST, Code.GET_SYNC_STATE_DATA_REQUEST,
            Code.RAFT_BROKER_HEART_BEAT_EVENT_REQUEST,
        ),
    ),
    ("No broker container: one broker per process.", (Code.ADD_BROKER, Code.REMOVE_BROKER)),
    ("RocketMQ's own brokers do not serve it: an acknowledgement names its lite topic.", (Code.ACK_LITE_MESSAGE,)),
    (
        "Sprocket does not use RocksDB.",
        (Code.CHECK_ROCKSDB_CQ_WRITE_PROGRESS, Code.EXPORT_ROCKSDB_CONFIG_TO_JSON),
    ),
    (
        "RocketMQ's own servers do not serve it either.",
        (
            Code.QUERY_BROKER_OFFSET, Code.GET_TOPIC_CONFIG_LIST, Code.GET_TOPIC_NAME_LIST, Code.TRIGGER_DELETE_FILES,
            Code.GET_CLIENT_CONFIG, Code.SUSPEND_CONSUMER, Code.RESUME_CONSUMER,
            Code.RESET_CONSUMER_OFFSET_IN_CONSUMER, Code.RESET_CONSUMER_OFFSET_IN_BROKER,
            Code.ADJUST_CONSUMER_THREAD_POOL, Code.WHO_CONSUME_THE_MESSAGE, Code.REGISTER_FILTER_SERVER,
            Code.REGISTER_MESSAGE_FILTER_CLASS,
        ),
    ),
)  # fmt: skip
