"""The report of a consumer as RocketMQ prints it, and a diagnosis of a group's reports.

Source: RocketMQ 5.3.3, `ConsumerRunningInfo.formatString`, `analyzeSubscription`, `analyzeProcessQueue`,
`ProcessQueueInfo.toString`, `PopProcessQueueInfo.toString`.
"""

from collections.abc import Mapping
from typing import Final

from sprocket.remoting.bodies.client import MessageQueue, by_queue
from sprocket.remoting.bodies.consumption import ConsumerRunningInfo, PopProcessQueueInfo, ProcessQueueInfo
from sprocket_cli.columns import compact_time_text
from sprocket_cli.mqadmin.java_form import java_form

_FIELD: Final = "%-40s: %s"
_QUEUE_HEAD: Final = "%-64s  %-32s  %-4s  %-20s"
_OFFSET: Final = "%-32s  %-32s  %-4d  %-20d"
_QUEUE: Final = "%-64s  %-32s  %-4d  %s"
_POP_HEAD: Final = "%-32s  %-32s  %-4s  %-20s"
_POP: Final = "%-32s  %-32s  %-4d  %s"
_RATE_HEAD: Final = "%-64s  %14s %14s %14s %14s %18s %25s"
_RATE: Final = "%-32s  %14.2f %14.2f %14.2f %14.2f %18.2f %25d"
_BLOCKED_MS: Final = 60_000
# A group whose first member has just started may still be changing its subscription.
_STARTED_FOR_A_WHILE_MS: Final = 120_000


def running_info_text(info: ConsumerRunningInfo[str]) -> str:
    """Return the whole report, as `consumerStatus` writes it to a file."""
    queues = sorted(by_queue(info.mq_table).items())
    pops = sorted(by_queue(info.mq_pop_table).items())
    lines = ["#Consumer Properties#"]
    lines += [_FIELD % (key, java_form(value)) for key, value in info.properties.items()]
    lines += ["", "", "#Consumer Subscription#"]
    for number, each in enumerate(info.subscription_set, 1):
        lines.append(
            f"{number:03d} Topic: {each.topic:<40} ClassFilter: {java_form(each.class_filter_mode):<8} "
            f"SubExpression: {each.sub_string}"
        )
    names = ("#Topic", "#Broker Name", "#QID")
    lines += ["", "", "#Consumer Offset#", _QUEUE_HEAD % (*names, "#Consumer Offset")]
    lines += [_OFFSET % (*_place(queue), held.commit_offset) for queue, held in queues]
    lines += ["", "", "#Consumer MQ Detail#", _QUEUE_HEAD % (*names, "#ProcessQueueInfo")]
    lines += [_QUEUE % (*_place(queue), process_queue_text(held)) for queue, held in queues]
    lines += ["", "", "#Consumer Pop Detail#", _POP_HEAD % (*names, "#ProcessQueueInfo")]
    lines += [_POP % (*_place(queue), _pop_text(held)) for queue, held in pops]
    lines += ["", "", "#Consumer RT&TPS#"]
    rates = ("#Pull RT", "#Pull TPS", "#Consume RT", "#ConsumeOK TPS", "#ConsumeFailed TPS", "#ConsumeFailedMsgsInHour")
    lines.append(_RATE_HEAD % ("#Topic", *rates))
    for topic, status in sorted(info.status_table.items()):
        numbers = (status.pull_rt, status.pull_tps, status.consume_rt, status.consume_ok_tps, status.consume_failed_tps)
        lines.append(_RATE % (topic, *numbers, status.consume_failed_msgs))
    lines += ["", "", "#User Consume Info#"]
    lines += [_FIELD % pair for pair in sorted(info.user_consumer_info.items())]
    if info.jstack is not None:
        lines += ["", "", "#Consumer jstack#", info.jstack]
    return "\n".join(lines) + "\n"


def _place(queue: MessageQueue) -> tuple[str, str, int]:
    return queue.topic, queue.broker_name, queue.queue_id


def process_queue_text(held: ProcessQueueInfo) -> str:
    """Return ``ProcessQueueInfo [commitOffset=7, ...]``."""
    fields = (
        ("commitOffset", held.commit_offset),
        ("cachedMsgMinOffset", held.cached_msg_min_offset),
        ("cachedMsgMaxOffset", held.cached_msg_max_offset),
        ("cachedMsgCount", held.cached_msg_count),
        ("cachedMsgSizeInMiB", held.cached_msg_size_in_mib),
        ("transactionMsgMinOffset", held.transaction_msg_min_offset),
        ("transactionMsgMaxOffset", held.transaction_msg_max_offset),
        ("transactionMsgCount", held.transaction_msg_count),
        ("locked", held.locked),
        ("tryUnlockTimes", held.try_unlock_times),
        ("lastLockTimestamp", compact_time_text(held.last_lock_timestamp)),
        ("droped", held.dropped),
        ("lastPullTimestamp", compact_time_text(held.last_pull_timestamp)),
        ("lastConsumeTimestamp", compact_time_text(held.last_consume_timestamp)),
    )
    return "ProcessQueueInfo [" + ", ".join(f"{name}={java_form(value)}" for name, value in fields) + "]"


def _pop_text(held: PopProcessQueueInfo) -> str:
    return (
        f"PopProcessQueueInfo [waitAckCount:{held.wait_ack_count}, droped:{java_form(held.dropped)}, "
        f"lastPopTimestamp:{held.last_pop_timestamp}]"
    )


def diagnosis(infos: Mapping[str, ConsumerRunningInfo[str]], now_ms: int) -> str:
    """Return whether the members of a group subscribe alike, and which queues seem stuck.  `infos`: by client id."""
    ordered = dict(sorted(infos.items()))
    if not subscribe_alike(list(ordered.values()), now_ms):
        return "\n\nWARN: Different subscription in the same group of consumer!!!"
    lines = ["", "", "Same subscription in the same group of consumer", "", "Rebalance OK"]
    return "\n".join([*lines, *(line for each in ordered.items() for line in stuck(*each, now_ms))])


def subscribe_alike(infos: list[ConsumerRunningInfo[str]], now_ms: int) -> bool:
    """Return whether all members subscribe alike; true if the first has just started or is no push consumer."""
    first = infos[0]
    started = str(first.properties.get("PROP_CONSUMER_START_TIMESTAMP", ""))
    if not _is_push(first) or not started.isdigit() or now_ms - int(started) <= _STARTED_FOR_A_WHILE_MS:
        return True
    wanted = [{(each.topic, each.sub_string, each.expression_type) for each in info.subscription_set} for info in infos]
    return all(each == wanted[0] for each in wanted)


def _is_push(info: ConsumerRunningInfo[str]) -> bool:
    return info.properties.get("PROP_CONSUME_TYPE") == "CONSUME_PASSIVELY"


def stuck(client_id: str, info: ConsumerRunningInfo[str], now_ms: int) -> list[str]:
    """Return a line for each queue of a push consumer that seems stuck."""
    if not _is_push(info):
        return []
    is_orderly = str(info.properties.get("PROP_CONSUMEORDERLY", "")).lower() == "true"
    lines = []
    for queue, held in sorted(by_queue(info.mq_table).items()):
        place = java_form(queue)
        if is_orderly and not held.locked:
            lines.append(f"{client_id} {place} can't lock for a while, {now_ms - held.last_lock_timestamp}ms")
        elif is_orderly and held.dropped and held.try_unlock_times > 0:
            lines.append(f"{client_id} {place} unlock {held.try_unlock_times} times, still failed")
        idle_ms = now_ms - held.last_consume_timestamp
        if not is_orderly and idle_ms > _BLOCKED_MS and held.cached_msg_count > 0:
            lines.append(f"{client_id} {place} can't consume for a while, maybe blocked, {idle_ms}ms")
    return lines
