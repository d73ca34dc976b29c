"""Properties of a message that belong to the protocol: a client may not set them and does not see them.

Source: RocketMQ 5.5.1, `MessageConst.STRING_HASH_SET`.  Stricter here: a client may not set what sends a message to
queues of other topics or makes one message of many, for the proxy's own account at a broker may write everywhere.
"""

from typing import Final

from sprocket.remoting.message import properties as names

TRACE_CONTEXT: Final = "TRACE_CONTEXT"
BORN_HOST: Final = "__BORNHOST"
DLQ_ORIGIN_TOPIC: Final = "DLQ_ORIGIN_TOPIC"
DLQ_ORIGIN_MESSAGE_ID: Final = "DLQ_ORIGIN_MESSAGE_ID"

RESERVED: Final = frozenset(
    {names.TRACE_ON, names.MSG_REGION, names.KEYS, names.TAGS, names.WAIT, names.DELAY, names.RETRY_TOPIC}
    | {names.REAL_TOPIC, names.REAL_QUEUE_ID, names.TRANSACTION_PREPARED, names.PRODUCER_GROUP, "MIN_OFFSET"}
    | {"MAX_OFFSET", "BUYER_ID", names.ORIGIN_MESSAGE_ID, "TRANSFER_FLAG", "CORRECTION_FLAG", "MQ2_FLAG"}
    | {names.RECONSUME_TIME, names.UNIQ_KEY, names.MAX_RECONSUME_TIMES, "CONSUME_START_TIME", names.POP_CK}
    | {"POP_CK_OFFSET", "1ST_POP_TIME", names.TRANSACTION_PREPARED_QUEUE_OFFSET, "DUP_INFO", "EXTEND_UNIQ_INFO"}
    | {"INSTANCE_ID", names.CORRELATION_ID, names.REPLY_TO_CLIENT, names.TTL, names.ARRIVE_TIME}
    | {names.PUSH_REPLY_TIME, names.CLUSTER, names.MSG_TYPE, names.INNER_MULTI_QUEUE_OFFSET, names.TIMER_DELAY_MS}
    | {names.TIMER_DELAY_SEC, names.TIMER_DELIVER_MS, names.TIMER_ENQUEUE_MS, names.TIMER_DEQUEUE_MS}
    | {names.TIMER_ROLL_TIMES, names.TIMER_OUT_MS, names.TIMER_DEL_UNIQKEY, "TIMER_DELAY_LEVEL", BORN_HOST}
    | {names.BORN_TIMESTAMP, DLQ_ORIGIN_TOPIC, DLQ_ORIGIN_MESSAGE_ID, "__CRC32#", names.PRIORITY, names.LITE_TOPIC}
)
REFUSED: Final = RESERVED | {
    names.INNER_MULTI_DISPATCH,
    names.INNER_NUM,
    names.INNER_BASE,
    names.INNER_SHARDING,
    names.TRANSACTION_CHECK_TIMES,
    names.CHECK_IMMUNITY_TIME_IN_SECONDS,
    names.TRANSACTION_ID,
}
