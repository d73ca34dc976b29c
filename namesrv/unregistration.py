"""Removal of brokers: at their request, when their connection closes, or after silence.

Each of the three names an incarnation; one of an older incarnation changes nothing.
Source: RocketMQ 5.3.3, `RouteInfoManager.unRegisterBroker`, `onChannelDestroy`, `scanNotActiveBroker`.
RocketMQ removes the live broker for any of them that names its address.
"""

import logging

from namesrv.route_table import LiveBroker, MinBrokerIdChange, RouteInfo, has_master, min_broker_id_change
from sprocket.common.logs.peer_lines import peer_lines

logger = logging.getLogger(__name__)


def unregister(
    table: RouteInfo, cluster_name: str, broker_name: str, broker_addr: str, channel_id: int
) -> list[MinBrokerIdChange]:
    """Remove a broker that asked for it over connection `channel_id`."""
    live = table.live.get((cluster_name, broker_addr))
    if live is None or live.broker_name != broker_name or live.channel_id > channel_id:
        peer_lines.info(
            logger, broker_addr, "event=unregister_ignored cluster=%s broker=%s addr=%s reason=%s", cluster_name,
            broker_name, broker_addr,
            "not_registered" if live is None or live.broker_name != broker_name else "older_incarnation",
        )  # fmt: skip
        return []
    return remove(table, live, "unregistered")


def close_channel(table: RouteInfo, channel_id: int) -> list[MinBrokerIdChange]:
    """Remove the brokers whose last sign of life came over connection `channel_id`, which is closed."""
    lost = [live for live in table.live.values() if live.channel_id == channel_id]
    return [change for live in lost for change in remove(table, live, "channel_closed")]


def expire(table: RouteInfo, now_ms: int) -> tuple[list[LiveBroker], list[MinBrokerIdChange]]:
    """Remove and return the brokers that were silent for too long; the caller closes their connections."""
    silent = [live for live in table.live.values() if live.last_update_ms + live.timeout_ms < now_ms]
    return silent, [change for live in silent for change in remove(table, live, "expired")]


def remove(table: RouteInfo, live: LiveBroker, reason: str) -> list[MinBrokerIdChange]:
    """Remove a live broker from all tables."""
    del table.live[live.key]
    table.filter_servers.pop(live.key, None)
    peer_lines.info(
        logger, live.broker_addr, "event=broker_removed cluster=%s broker=%s id=%d addr=%s reason=%s",
        live.cluster_name, live.broker_name, live.broker_id, live.broker_addr, reason,
    )  # fmt: skip
    group = table.brokers.get(live.broker_name)
    # Another process may hold the place now: the same broker id at another address.
    if group is None or group.broker_addrs.get(live.broker_id) != live.broker_addr:
        return []
    was_min = live.broker_id == min(group.broker_addrs)
    del group.broker_addrs[live.broker_id]
    if not group.broker_addrs:
        _remove_group(table, live.broker_name)
        return []
    if group.enable_acting_master and not has_master(group):
        table.wipe_write_perm(live.broker_name)
    if was_min and group.enable_acting_master:
        return [min_broker_id_change(group, offline_broker_addr=live.broker_addr)]
    return []


def _remove_group(table: RouteInfo, broker_name: str) -> None:
    """Remove a broker group without members, its topics, and its cluster if that becomes empty."""
    del table.brokers[broker_name]
    table.named.pop(broker_name, None)
    table.wiped.discard(broker_name)
    for cluster_name in [name for name, members in table.clusters.items() if broker_name in members]:
        members = table.clusters[cluster_name]
        members.discard(broker_name)
        if not members:
            del table.clusters[cluster_name]
    for topic in [topic for topic, _ in table.topics_of(broker_name)]:
        table.drop_queues(topic, broker_name)
