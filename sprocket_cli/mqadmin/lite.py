"""`mqadmin` about lite topics: who subscribes them, their offsets, and the lag of groups.

Source of names, flags and output: RocketMQ 5.5.0, package `org.apache.rocketmq.tools.command.lite`.  Beyond it the
brokers are asked at once and shown by name, and a broker's failure is an error, with its reason, after the output.
"""

from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from typing import Final, TypeVar

import click

from sprocket.client.admin.admin_client import AdminClient, AdminDenied, AdminError
from sprocket.client.admin.at_once import AtOnce, Outcomes, answered, failures
from sprocket.common.clock import SystemClock
from sprocket.remoting.bodies.lite import (
    GetBrokerLiteInfoResponseBody,
    GetLiteClientInfoResponseBody,
    GetLiteGroupInfoResponseBody,
    GetLiteTopicInfoResponseBody,
    GetParentTopicInfoResponseBody,
    LiteLagInfo,
)
from sprocket.remoting.bodies.route import addresses_of
from sprocket.remoting.bodies.stats import OffsetWrapper
from sprocket.remoting.codec.fastjson import dumps
from sprocket.remoting.message.lite_topics import lite_queue
from sprocket_cli.client_session import json_option, print_found
from sprocket_cli.columns import millis_text
from sprocket_cli.mqadmin.java_form import java_form
from sprocket_cli.mqadmin.options import admin_command
from sprocket_cli.target import Target, target_options

T = TypeVar("T")

_MAX_REQUESTS: Final = 16  # at once
_TOP: Final = 20  # `GetLiteGroupInfoSubCommand`
_BROKER: Final = "%-30s %-17s %-10s %-14s %-20s %-17s %-15s %-18s %-15s"
_PARENT: Final = "%-50s %-8s %-14s %-14s %-100s "
_TOPIC: Final = "%-50s %-14s %-14s %-30s %-12s %-18s "
_CLIENT: Final = "%-30s %-20s %-30s %-30s "
_OFFSETS: Final = "%-50s %-16s %-16s %-16s %-30s"
_LAG: Final = "%-6s %-40s %-12s %-30s"

_parent_option = click.option("-p", "--parentTopic", "topic", required=True, help="Parent topic name.")
_group_option = click.option("-g", "--group", required=True, help="Consumer group.")


async def _ask_all(
    admin: AdminClient, brokers: Mapping[str, str], ask: Callable[[str], Awaitable[T]],
    show: Callable[[Outcomes[str, T]], Iterable[str]], *, as_json: bool = False,
) -> None:  # fmt: skip
    """Ask each of `brokers`, whose addresses are by what the output calls them, at once.

    Print what `show` makes of the outcomes, and fail if one failed.
    """
    outcomes = await AtOnce(_MAX_REQUESTS).each(brokers, lambda name: ask(brokers[name]))
    print_found(answered(outcomes), show(outcomes), as_json=as_json)
    failed = failures(outcomes)
    if failed:
        denied = next((error for error in failed.values() if isinstance(error, AdminDenied)), None)
        raise AdminError("; ".join(f"{name}: {error}" for name, error in failed.items())) from denied


async def _on_route(admin: AdminClient, topic: str, only: str | None = None) -> Mapping[str, str]:
    """Return the address of a topic's brokers by name: the master of each, else a slave; `only` one of this name."""
    route = await admin.topic_route(topic)
    found = {name: one for name, one in addresses_of(route.broker_datas).items() if only in (None, name)}
    if only is not None and not found:
        raise AdminError(f"broker {only} is not on the route of topic {topic}")
    return found


def _lines(outcomes: Outcomes[str, T], lines_of: Callable[[str, T], Iterable[str]]) -> Iterator[str]:
    for name, outcome in outcomes.items():
        if isinstance(outcome, AdminError):
            yield f"[{name}] error."
        else:
            yield from lines_of(name, outcome)


def _time(time_ms: int, absent: str = "-") -> str:
    return millis_text(time_ms) if time_ms > 0 else absent


@admin_command("getBrokerLiteInfo")
@target_options("Every master of this cluster.", cluster_flag="--cluster")
@click.option("-d", "--showDetail", "detail", is_flag=True, help="Show parent topics and their groups, too.")
@json_option
async def get_broker_lite_info(admin: AdminClient, target: Target, detail: bool, as_json: bool) -> None:
    """Show how many lite topics, subscriptions and events a broker has."""

    def lines_of(address: str, body: GetBrokerLiteInfoResponseBody) -> Iterator[str]:
        yield _BROKER % (
            address, body.store_type, body.max_lmq_num, body.current_lmq_num, body.lite_subscription_count,
            body.order_info_count, body.cq_table_size, body.offset_table_size, body.event_map_size,
        )  # fmt: skip
        if detail:
            yield f"Topic Meta: {dumps(body.topic_meta).decode()}"
            yield f"Group Meta: {dumps(body.group_meta).decode()}\n"

    def show(outcomes: Outcomes[str, GetBrokerLiteInfoResponseBody]) -> Iterator[str]:
        yield _BROKER % (
            "#Broker", "#Store Type", "#Max LMQ", "#Current LMQ", "#SubscriptionCount", "#OrderInfoCount",
            "#CQTableSize", "#OffsetTableSize", "#eventMapSize",
        )  # fmt: skip
        yield from _lines(outcomes, lines_of)

    brokers = {address: address for address in await target.addresses(admin)}
    await _ask_all(admin, brokers, admin.broker_lite_info, show, as_json=as_json)


@admin_command("getParentTopicInfo")
@_parent_option
@json_option
async def get_parent_topic_info(admin: AdminClient, topic: str, as_json: bool) -> None:
    """Show the groups of a parent topic, and how many lite topics it has."""

    def lines_of(name: str, body: GetParentTopicInfoResponseBody) -> Iterator[str]:
        yield _PARENT % (name[:40], body.ttl, body.lite_topic_count, body.lmq_num, java_form(body.groups))

    def show(outcomes: Outcomes[str, GetParentTopicInfoResponseBody]) -> Iterator[str]:
        yield f"Parent Topic Info: [{topic}]"
        yield _PARENT % ("#Broker Name", "#TTL", "#Lite Count", "#LMQ NUM", "#GROUPS")
        yield from _lines(outcomes, lines_of)

    brokers = await _on_route(admin, topic)
    await _ask_all(admin, brokers, lambda address: admin.parent_topic_info(address, topic), show, as_json=as_json)


@admin_command("getLiteTopicInfo")
@_parent_option
@click.option("-l", "--liteTopic", "lite", required=True, help="Lite topic name.")
@click.option("-s", "--showClientId", "with_clients", is_flag=True, help="Show all client ids.")
@json_option
async def get_lite_topic_info(
    admin: AdminClient, topic: str, lite: str, with_clients: bool, as_json: bool
) -> None:  # fmt: skip
    """Show the offsets of a lite topic, and how many clients subscribe it."""

    def lines_of(name: str, body: GetLiteTopicInfoResponseBody) -> Iterator[str]:
        extent = body.topic_offset
        cells = (0, 0, "-") if extent is None else (
            extent.min_offset, extent.max_offset, _time(extent.last_update_timestamp)
        )  # fmt: skip
        yield _TOPIC % (name[:40], *cells, java_form(body.sharding_to_broker), len(body.subscriber))
        if with_clients:
            yield java_form([f"{client.client_id}@{client.group}" for client in body.subscriber])

    def show(outcomes: Outcomes[str, GetLiteTopicInfoResponseBody]) -> Iterator[str]:
        yield f"Lite Topic Info: [{topic}] [{lite}] [{lite_queue(topic, lite)}]"
        yield _TOPIC % ("#Broker Name", "#MinOffset", "#MaxOffset", "#LastUpdate", "#Sharding", "#SubClientCount")
        yield from _lines(outcomes, lines_of)

    brokers = await _on_route(admin, topic)
    await _ask_all(admin, brokers, lambda address: admin.lite_topic_info(address, topic, lite), show, as_json=as_json)


@admin_command("getLiteClientInfo")
@_parent_option
@_group_option
@click.option("-c", "--clientId", "client", required=True, help="Client id.")
@click.option("-s", "--showDetail", "detail", is_flag=True, help="Show the lite topics, at most 1000 of each broker.")
@json_option
async def get_lite_client_info(
    admin: AdminClient, topic: str, group: str, client: str, detail: bool, as_json: bool
) -> None:
    """Show how many lite topics a client subscribes, and when it last asked for messages."""

    def lines_of(broker: str, body: GetLiteClientInfoResponseBody) -> Iterator[str]:
        yield _CLIENT % (
            broker, body.lite_topic_count if body.lite_topic_count > 0 else "N/A",
            _time(body.last_access_time, "N/A"), _time(body.last_consume_time, "N/A"),
        )  # fmt: skip
        if detail and body.lite_topic_count >= 0:
            yield f"Lite Topics: {java_form(list(body.lite_topic_set))}\n"

    def show(outcomes: Outcomes[str, GetLiteClientInfoResponseBody]) -> Iterator[str]:
        yield f"Lite Client Info: [{topic}] [{group}] [{client}]"
        yield _CLIENT % ("#Broker", "#LiteTopicCount", "#LastAccessTime", "#LastConsumeTime")
        yield from _lines(outcomes, lines_of)

    brokers = await _on_route(admin, topic)
    await _ask_all(
        admin, brokers, lambda address: admin.lite_client_info(address, topic, group, client), show, as_json=as_json
    )


@admin_command("getLiteGroupInfo")
@_parent_option
@_group_option
@click.option("-l", "--liteTopic", "lite_topic", help="Only this lite topic, with its offsets.")
@click.option("-k", "--topK", "top_k", type=click.IntRange(0), default=_TOP, help="Lite topics of each broker.")
@json_option
async def get_lite_group_info(
    admin: AdminClient, topic: str, group: str, lite_topic: str | None, top_k: int, as_json: bool
) -> None:
    """Show the lag of a group, and the lite topics where it is largest."""
    lite = lite_topic or None

    def show(outcomes: Outcomes[str, GetLiteGroupInfoResponseBody]) -> Iterator[str]:
        yield f"Lite Group Info: [{group}] [{topic}]"
        if lite is not None:
            yield _OFFSETS % ("#Broker Name", "#BrokerOffset", "#ConsumeOffset", "#LagCount", "#LastUpdate")
        yield from _lines(
            outcomes,
            lambda broker, body: [] if lite is None else [_offsets_line(broker, body.lite_topic_offset_wrapper)],
        )
        bodies = list(answered(outcomes).values())
        if bodies:
            yield from _lag_lines(bodies, SystemClock().wall_ms())
            if lite is None:
                yield from _top_lines(bodies)

    brokers = await _on_route(admin, topic)
    await _ask_all(
        admin, brokers, lambda address: admin.lite_group_info(address, group, lite, top_k), show, as_json=as_json
    )


def _offsets_line(broker: str, offsets: OffsetWrapper | None) -> str:
    if offsets is None:
        return _OFFSETS % (broker, "-", "-", "-", "-")
    end, consumed = offsets.broker_offset, offsets.consumer_offset
    return _OFFSETS % (broker, end, consumed, end - consumed, _time(offsets.last_timestamp))


def _lag_lines(bodies: list[GetLiteGroupInfoResponseBody], now_ms: int) -> Iterator[str]:
    times = [body.earliest_unconsumed_timestamp for body in bodies if body.earliest_unconsumed_timestamp > 0]
    earliest_ms = min([now_ms, *times])
    yield f"Total Lag Count: {sum(max(0, body.total_lag_count) for body in bodies)}"
    yield f"Min Unconsumed Timestamp: {earliest_ms} ({(now_ms - earliest_ms) // 1000} s ago)\n"


def _top_lines(bodies: list[GetLiteGroupInfoResponseBody]) -> Iterator[str]:
    """Return the lite topics with the largest and with the oldest lag, of all brokers together."""
    counts = [lag for body in bodies for lag in body.lag_count_top_k or []]
    times = [lag for body in bodies for lag in body.lag_timestamp_top_k or []]
    yield "------TopK by lag count-----"
    yield from _table(sorted(counts, key=lambda lag: -lag.lag_count))
    yield "\n------TopK by lag time------"
    yield from _table(sorted(times, key=lambda lag: lag.earliest_unconsumed_timestamp))


def _table(lags: Iterable[LiteLagInfo]) -> Iterator[str]:
    yield _LAG % ("NO", "Lite Topic", "Lag Count", "UnconsumedTimestamp")
    for number, lag in enumerate(lags, 1):
        yield _LAG % (number, lag.lite_topic, lag.lag_count, _time(lag.earliest_unconsumed_timestamp))


@admin_command("triggerLiteDispatch")
@_parent_option
@_group_option
@click.option("-c", "--clientId", "client", help="Only this client.")
@click.option("-b", "--brokerName", "broker_name", help="Only this broker.")
async def trigger_lite_dispatch(
    admin: AdminClient, topic: str, group: str, client: str | None, broker_name: str | None
) -> None:
    """Let the clients of a group look at all their lite topics again."""

    def show(outcomes: Outcomes[str, None]) -> Iterator[str]:
        yield f"Group And Topic Info: [{group}] [{topic}]\n"
        for broker, outcome in outcomes.items():
            yield f"{broker:<30} {'dispatched' if outcome is None else 'error':<12}"

    brokers = await _on_route(admin, topic, broker_name)
    await _ask_all(admin, brokers, lambda address: admin.trigger_lite_dispatch(address, group, client), show)
