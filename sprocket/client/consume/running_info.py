"""A consumer's description of itself, as operators see it with `mqadmin consumerStatus`.

Source: RocketMQ 5.3.3, `DefaultMQPushConsumerImpl.consumerRunningInfo`, `MQClientInstance.consumerRunningInfo`,
`ProcessQueue.fillProcessQueueInfo`.
"""

from collections.abc import Iterable

from sprocket.client.consume.consume_settings import ConsumeSettings, MessageModel
from sprocket.client.consume.consume_stats import ConsumerStats
from sprocket.client.pull.process_queue import ProcessQueue
from sprocket.common.clock import Clock
from sprocket.remoting.bodies.client import MessageQueue, SubscriptionData
from sprocket.remoting.bodies.consumption import (
    PROP_CLIENT_VERSION,
    PROP_CONSUME_ORDERLY,
    PROP_CONSUME_TYPE,
    PROP_CONSUMER_START_TIMESTAMP,
    PROP_NAMESERVER_ADDR,
    PROP_THREADPOOL_CORE_SIZE,
    ConsumerRunningInfo,
    ProcessQueueInfo,
)
from sprocket.remoting.command import VERSION
from sprocket.remoting.version_names import version_text

_MIB = 1024 * 1024
VERSION_NAME = version_text(VERSION)


def properties_of(
    group: str,
    model: MessageModel,
    settings: ConsumeSettings,
    *,
    name_servers: str,
    is_orderly: bool,
    concurrency: int,
    started_ms: int,
    consume_from_where: str,
) -> dict[str, object]:
    """Return the properties that RocketMQ's tools read, and the settings under RocketMQ's names."""
    pull = settings.pull
    return {
        PROP_NAMESERVER_ADDR: name_servers,
        PROP_CONSUME_TYPE: "CONSUME_PASSIVELY",
        PROP_CLIENT_VERSION: VERSION_NAME,
        PROP_CONSUME_ORDERLY: "true" if is_orderly else "false",
        PROP_THREADPOOL_CORE_SIZE: str(concurrency),
        PROP_CONSUMER_START_TIMESTAMP: str(started_ms),
        "consumerGroup": group,
        "messageModel": model.value,
        "consumeFromWhere": consume_from_where,
        "maxReconsumeTimes": str(settings.max_reconsume_times),
        "consumeMessageBatchMaxSize": str(settings.consume_message_batch_max_size),
        "consumeTimeout": str(round(settings.consume_timeout_s / 60)),  # minutes
        "pullBatchSize": str(pull.pull_batch_size),
        "pullThresholdForQueue": str(pull.pull_threshold_for_queue),
        "pullThresholdSizeForQueue": str(pull.pull_threshold_size_for_queue_bytes // _MIB),
        "consumeConcurrentlyMaxSpan": str(pull.consume_concurrently_max_span),
    }


def running_info(
    properties: dict[str, object],
    subscriptions: Iterable[SubscriptionData],
    held: Iterable[tuple[ProcessQueue, float | None]],
    stats: ConsumerStats,
    clock: Clock,
) -> ConsumerRunningInfo[MessageQueue]:
    """`held` are queues, each with the monotonic time at which its lock was taken, None without a lock."""
    known = sorted(subscriptions, key=lambda data: data.topic)
    now = clock.monotonic()
    table = {queue.queue: _process_queue_info(queue, locked_at, clock) for queue, locked_at in held}
    return ConsumerRunningInfo(
        properties=properties,
        subscription_set=known,
        mq_table={queue: table[queue] for queue in sorted(table)},
        status_table={data.topic: stats.status(data.topic, now) for data in known},
    )


def _process_queue_info(held: ProcessQueue, locked_at: float | None, clock: Clock) -> ProcessQueueInfo:
    now, wall_ms = clock.monotonic(), clock.wall_ms()

    def wall(at: float | None) -> int:
        return 0 if at is None else wall_ms - round((now - at) * 1000)

    first, last = held.extent
    return ProcessQueueInfo(
        commit_offset=-1 if held.commit_offset is None else held.commit_offset,
        cached_msg_min_offset=first,
        cached_msg_max_offset=last,
        cached_msg_count=held.count,
        cached_msg_size_in_mib=held.size_bytes // _MIB,
        locked=locked_at is not None,
        last_lock_timestamp=wall(locked_at),
        dropped=held.is_dropped,
        last_pull_timestamp=wall(held.last_pull_at),
        last_consume_timestamp=wall(held.last_pull_at if held.last_taken_at is None else held.last_taken_at),
    )
