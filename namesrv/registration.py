"""Registration of brokers and their signs of life: registration, data version, heartbeat.

Source: RocketMQ 5.3.3, `RouteInfoManager.registerBroker`, `isBrokerTopicConfigChanged`,
`updateBrokerInfoUpdateTimestamp`.
"""

import logging
from collections import deque
from collections.abc import Generator
from dataclasses import dataclass, field
from itertools import count
from typing import Final

from namesrv.config import NamesrvConfig
from namesrv.named_topics import NamedTopics
from namesrv.route_table import (
    DEFAULT_BROKER_TIMEOUT_MS,
    LiveBroker,
    MinBrokerIdChange,
    RouteInfo,
    min_broker_id_change,
)
from namesrv.unregistration import remove
from sprocket.common import limits
from sprocket.common.logs.peer_lines import peer_lines
from sprocket.common.next_turn import at_once
from sprocket.remoting.bodies.registration import RegisterBrokerBody
from sprocket.remoting.bodies.route import MASTER_ID, BrokerData, QueueData, has_possible_queues
from sprocket.remoting.bodies.topic import PERM_WRITE, DataVersion, TopicConfig
from sprocket.remoting.headers.namesrv import RegisterBrokerRequestHeader

logger = logging.getLogger(__name__)

# Topics to enter in one turn of the event loop: about 5 ms.
_SLICE_TOPICS: Final = 2_000
# Topics of one registration that get their own log line.
_MAX_TOPIC_LINES: Final = 16


@dataclass(slots=True)
class Registered:
    """Response to a registration, and the changes to announce to the group."""

    ha_server_addr: str | None = None
    master_addr: str | None = None
    changes: list[MinBrokerIdChange] = field(default_factory=list)


# Steps of a registration; between two, other requests are served.  The generator's value is the response.
Steps = Generator[None, None, Registered | None]


def register(
    table: RouteInfo,
    header: RegisterBrokerRequestHeader,
    body: RegisterBrokerBody,
    channel_id: int,
    config: NamesrvConfig,
    now_ms: int,
    *,
    marks_parts: bool = False,
) -> Registered | None:
    """Run all `steps` at once."""
    return at_once(steps(table, header, body, channel_id, config, now_ms, marks_parts=marks_parts))


def steps(
    table: RouteInfo,
    header: RegisterBrokerRequestHeader,
    body: RegisterBrokerBody,
    channel_id: int,
    config: NamesrvConfig,
    now_ms: int,
    *,
    marks_parts: bool = False,
) -> Steps:
    """Enter a broker and, if it is the master or its substitute, its topics.

    `marks_parts`: the broker marks a part of its table with a queue mapping, as Sprocket's does.  The value is None if
    the registration is refused, because a single topic came from an unregistered broker.  It is an empty response if a
    broker with newer state holds the place; then the sender is no longer registered.  If the broker is removed between
    two steps, its other topics are not entered.
    """
    name, addr, broker_id = header.broker_name, header.broker_addr, header.broker_id
    group = table.brokers.get(name)
    if group is not None and _is_held_by_newer(table, group, header, body):
        return Registered(changes=_reject(table, header))
    first = group is None or broker_id not in group.broker_addrs
    if first and len(body.topic_config_serialize_wrapper.topic_config_table) == 1:
        peer_lines.warning(
            logger, addr, "event=registration_refused broker=%s id=%d addr=%s reason=one_topic", name, broker_id, addr
        )
        return None
    answer = Registered()
    previous = table.live.get((header.cluster_name, addr))
    if previous is not None and previous.broker_name != name:
        # An address serves one broker: the one with the former name is gone.
        answer.changes += remove(table, previous, "renamed")
        previous = None
    group = _enter_group(table, header, answer)
    _enter_live(table, header, body, previous, channel_id, now_ms)
    if broker_id == MASTER_ID or _is_prime_slave(group, header):
        if broker_id == MASTER_ID and previous is None:
            table.wiped.discard(name)
        changed = first or previous is None or previous.data_version != body.topic_config_serialize_wrapper.data_version
        _remove_unnamed(table, header, body, config, marks_parts=marks_parts)
        yield from _enter_topics(table, group, header, body, changed)
    if broker_id != MASTER_ID:
        _find_master(table, group, header.cluster_name, answer)
    return answer


def is_changed(table: RouteInfo, cluster_name: str, broker_addr: str, version: DataVersion) -> bool:
    """Return whether a broker must register: its tables are unknown here, or have another version."""
    live = table.live.get((cluster_name, broker_addr))
    if live is None or live.data_version != version:
        return True
        # Another broker took its place and has left since: let it register again.
    group = table.brokers.get(live.broker_name)
    if group is None or live.broker_id not in group.broker_addrs:
        return True
    # A route waits for another list of topics.  A broker without forceRegister sends one only if it must.
    named = table.named.get(live.broker_name)
    return named is not None and named.awaits_list


def note_alive(table: RouteInfo, cluster_name: str, broker_addr: str, channel_id: int, now_ms: int) -> None:
    """Note a sign of life over connection `channel_id`.  A newer connection replaces the known one."""
    live = table.live.get((cluster_name, broker_addr))
    if live is not None:
        live.last_update_ms = now_ms
        live.channel_id = max(live.channel_id, channel_id)


def _is_held_by_newer(
    table: RouteInfo, group: BrokerData, header: RegisterBrokerRequestHeader, body: RegisterBrokerBody
) -> bool:
    holder_addr = group.broker_addrs.get(header.broker_id)
    if holder_addr is None or holder_addr == header.broker_addr:
        return False
    holder = table.live.get((header.cluster_name, holder_addr))
    version = body.topic_config_serialize_wrapper.data_version
    return holder is not None and holder.data_version.state_version > version.state_version


def _reject(table: RouteInfo, header: RegisterBrokerRequestHeader) -> list[MinBrokerIdChange]:
    peer_lines.warning(
        logger, header.broker_addr,
        "event=registration_rejected cluster=%s broker=%s id=%d addr=%s reason=place_held_by_newer_state",
        header.cluster_name, header.broker_name, header.broker_id, header.broker_addr,
    )  # fmt: skip
    known = table.live.get((header.cluster_name, header.broker_addr))
    return [] if known is None else remove(table, known, "rejected")


def _enter_group(table: RouteInfo, header: RegisterBrokerRequestHeader, answer: Registered) -> BrokerData:
    """Make the broker a member of its group under this id only."""
    name, addr, broker_id = header.broker_name, header.broker_addr, header.broker_id
    table.clusters.setdefault(header.cluster_name, set()).add(name)
    group = table.brokers.get(name)
    if group is None:
        group = table.brokers[name] = BrokerData(header.cluster_name, name)
    group.enable_acting_master = bool(header.enable_acting_master)
    group.zone_name = header.zone_name
    previous_min = min(group.broker_addrs, default=0)
    # A slave that became master registers with the same address and another id.
    for other_id in [i for i, a in group.broker_addrs.items() if a == addr and i != broker_id]:
        del group.broker_addrs[other_id]
    group.broker_addrs[broker_id] = addr
    if broker_id < previous_min:
        answer.changes.append(min_broker_id_change(group, ha_broker_addr=header.ha_server_addr))
    return group


def _is_prime_slave(group: BrokerData, header: RegisterBrokerRequestHeader) -> bool:
    """Return whether the broker is the slave that substitutes a lost master.  Old brokers never say if they may."""
    return header.enable_acting_master is not None and header.broker_id == min(group.broker_addrs)


def _remove_unnamed(
    table: RouteInfo,
    header: RegisterBrokerRequestHeader,
    body: RegisterBrokerBody,
    config: NamesrvConfig,
    *,
    marks_parts: bool,
) -> None:
    """With deleteTopicWithBrokerRegistration, remove the routes that the broker no longer names."""
    name = header.broker_name
    if not config.delete_topic_with_broker_registration:
        table.named.pop(name, None)
        return
    wrapper = body.topic_config_serialize_wrapper
    named = table.named.setdefault(name, NamedTopics())
    if wrapper.topic_queue_mapping_info_map:
        # A part of a list, or a broker with static topics: RocketMQ keeps its routes, too.
        named.note(wrapper.topic_config_table)
        return
    routed = [topic for topic, _ in table.topics_of(name)]
    broker = header.cluster_name, name
    for topic in named.unnamed(broker, wrapper.topic_config_table, routed, is_whole=marks_parts):
        table.drop_queues(topic, name)
        peer_lines.info(
            logger, header.broker_addr, "event=topic_dropped topic=%s broker=%s reason=not_registered", topic, name
        )


def _enter_topics(
    table: RouteInfo,
    group: BrokerData,
    header: RegisterBrokerRequestHeader,
    body: RegisterBrokerBody,
    changed: bool,
) -> Generator[None]:
    wrapper = body.topic_config_serialize_wrapper
    name = header.broker_name
    acts = header.broker_id != MASTER_ID and group.enable_acting_master
    entered: list[tuple[str, QueueData]] = []
    configs = deque(wrapper.topic_config_table.values())
    if len(configs) > _SLICE_TOPICS:
        # Freeing so many objects takes long as well, so it is done in slices.
        wrapper.topic_config_table.clear()
    for number in count(1):
        if not configs:
            break
        topic_config = configs.popleft()
        topic = topic_config.topic_name
        if changed or name not in table.topics.get(topic, ()):
            queues = _queues(name, topic_config, acts)
            if not has_possible_queues(queues):
                table.drop_queues(topic, name)
                peer_lines.warning(
                    logger, header.broker_addr, "event=topic_refused topic=%s broker=%s read=%d write=%d max=%d",
                    topic, name, queues.read_queue_nums, queues.write_queue_nums, limits.MAX_TOPIC_QUEUES,
                )  # fmt: skip
            elif table.put_queues(topic, queues):
                entered.append((topic, queues))
        if number % _SLICE_TOPICS == 0:
            yield
            if table.brokers.get(name) is not group or group.broker_addrs.get(header.broker_id) != header.broker_addr:
                return
    _log_entered(name, entered)
    if changed:
        for topic, mapping in wrapper.topic_queue_mapping_info_map.items():
            table.mappings.setdefault(topic, {})[mapping.bname or name] = mapping


def _log_entered(broker_name: str, entered: list[tuple[str, QueueData]]) -> None:
    """Log a line for each of a few topics, or one line for many: a broker may have 100,000."""
    if len(entered) > _MAX_TOPIC_LINES:
        first = [topic for topic, _ in entered[:_MAX_TOPIC_LINES]]
        peer_lines.info(
            logger, broker_name, "event=topic_routes broker=%s topics=%d first=%s", broker_name, len(entered), first
        )
        return
    for topic, queues in entered:
        peer_lines.info(
            logger, broker_name, "event=topic_route topic=%s broker=%s read=%d write=%d perm=%d",
            topic, broker_name, queues.read_queue_nums, queues.write_queue_nums, queues.perm,
        )  # fmt: skip


def _queues(broker_name: str, config: TopicConfig, acts: bool) -> QueueData:
    # A slave that substitutes the master serves reads only.
    perm = config.perm & ~PERM_WRITE if acts else config.perm
    return QueueData(broker_name, config.read_queue_nums, config.write_queue_nums, perm, config.topic_sys_flag)


def _enter_live(
    table: RouteInfo,
    header: RegisterBrokerRequestHeader,
    body: RegisterBrokerBody,
    previous: LiveBroker | None,
    channel_id: int,
    now_ms: int,
) -> None:
    timeout_ms = header.heartbeat_timeout_millis
    live = LiveBroker(
        header.cluster_name,
        header.broker_name,
        header.broker_id,
        header.broker_addr,
        # A late registration over an older connection does not make that connection the current one.
        channel_id if previous is None else max(channel_id, previous.channel_id),
        now_ms,
        DEFAULT_BROKER_TIMEOUT_MS if timeout_ms is None else timeout_ms,
        body.topic_config_serialize_wrapper.data_version,
        header.ha_server_addr,
    )
    table.live[live.key] = live
    if body.filter_server_list:
        table.filter_servers[live.key] = body.filter_server_list
    else:
        table.filter_servers.pop(live.key, None)
    if previous is None:
        peer_lines.info(
            logger, live.broker_addr, "event=broker_registered cluster=%s broker=%s id=%d addr=%s ha=%s",
            live.cluster_name, live.broker_name, live.broker_id, live.broker_addr, live.ha_server_addr,
        )  # fmt: skip


def _find_master(table: RouteInfo, group: BrokerData, cluster_name: str, answer: Registered) -> None:
    master_addr = group.broker_addrs.get(MASTER_ID)
    master = None if master_addr is None else table.live.get((cluster_name, master_addr))
    if master is not None:
        answer.master_addr = master.broker_addr
        answer.ha_server_addr = master.ha_server_addr
