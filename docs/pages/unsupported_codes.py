"""Request codes of RocketMQ that nothing here answers, each with its reason.

The one place that says so: docs/compatibility.md shows the reasons, and tests hold the table to the routes of
broker, name server and client.  A code that gets a route leaves this table.
"""

from collections.abc import Iterable
from typing import Final

from sprocket.remoting.codes import RequestCode as Code


def _by_reason(*groups: tuple[str, Iterable[Code]]) -> dict[Code, str]:
    return {code: reason for reason, codes in groups for code in codes}


def _named(*prefixes: str) -> list[Code]:
    return [code for code in Code if code.name.startswith(prefixes)]


UNSUPPORTED: Final = _by_reason(
    ("Moves pop's records out of RocksDB, which is not used here.", (Code.POP_ROLLBACK,)),
    ("No controller mode yet.", (Code.GET_BROKER_EPOCH_CACHE, Code.NOTIFY_BROKER_ROLE_CHANGED)),
    (
        "No controller: a master is not replaced by itself.",
        (
            *_named("CONTROLLER_"), Code.UPDATE_CONTROLLER_CONFIG, Code.GET_CONTROLLER_CONFIG, Code.CLEAN_BROKER_DATA,
            Code.BROKER_CLOSE_CHANNEL_REQUEST, Code.CHECK_NOT_ACTIVE_BROKER_REQUEST,
            Code.GET_BROKER_LIVE_INFO_REQUEST, Code.GET_SYNC_STATE_DATA_REQUEST,
            Code.RAFT_BROKER_HEART_BEAT_EVENT_REQUEST,
        ),
    ),
    ("One broker in a process; there is no broker container.", (Code.ADD_BROKER, Code.REMOVE_BROKER)),
    ("No static topics (logical queues that move between brokers).", (Code.UPDATE_AND_CREATE_STATIC_TOPIC,)),
    (
        "RocksDB is not used here.",
        (Code.CHECK_ROCKSDB_CQ_WRITE_PROGRESS, Code.EXPORT_ROCKSDB_CONFIG_TO_JSON),
    ),
    (
        "Not answered by RocketMQ's own servers either.",
        (
            Code.QUERY_BROKER_OFFSET, Code.GET_TOPIC_CONFIG_LIST, Code.GET_TOPIC_NAME_LIST, Code.TRIGGER_DELETE_FILES,
            Code.GET_CLIENT_CONFIG, Code.SUSPEND_CONSUMER, Code.RESUME_CONSUMER,
            Code.RESET_CONSUMER_OFFSET_IN_CONSUMER, Code.RESET_CONSUMER_OFFSET_IN_BROKER,
            Code.ADJUST_CONSUMER_THREAD_POOL, Code.WHO_CONSUME_THE_MESSAGE, Code.REGISTER_FILTER_SERVER,
            Code.REGISTER_MESSAGE_FILTER_CLASS,
        ),
    ),
)  # fmt: skip
