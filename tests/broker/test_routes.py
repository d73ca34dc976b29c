"""Every request code of RocketMQ is either routed, with its access rule, or refused by name."""

from pathlib import Path

import pytest

from broker.server import Broker
from remoting.codes import RequestCode, ResponseCode
from remoting.routes import Action, Lane, Resource
from tests.broker.rig import broker_config, running_broker, store_config

# What a broker of this stage does not do; a code that gets a route must leave this list.
UNSUPPORTED = frozenset(
    code
    for code in RequestCode
    if code.name.startswith(("CONTROLLER_", "AUTH_", "POP_"))
    or code
    in {
        # Messages: pop, recall.
        RequestCode.RESUME_CHECK_HALF_MESSAGE, RequestCode.ACK_MESSAGE, RequestCode.BATCH_ACK_MESSAGE,
        RequestCode.PEEK_MESSAGE, RequestCode.CHANGE_MESSAGE_INVISIBLETIME, RequestCode.NOTIFICATION,
        RequestCode.POLLING_INFO, RequestCode.RECALL_MESSAGE, RequestCode.QUERY_ASSIGNMENT,
        RequestCode.SET_MESSAGE_REQUEST_MODE, RequestCode.GET_ALL_MESSAGE_REQUEST_MODE,
        RequestCode.GET_TIMER_CHECK_POINT, RequestCode.GET_TIMER_METRICS,
        # Name servers, clients and controllers answer these.
        RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT,
        RequestCode.CHECK_TRANSACTION_STATE,
        RequestCode.PUT_KV_CONFIG, RequestCode.GET_KV_CONFIG, RequestCode.DELETE_KV_CONFIG,
        RequestCode.REGISTER_BROKER, RequestCode.UNREGISTER_BROKER, RequestCode.GET_ROUTEINFO_BY_TOPIC,
        RequestCode.GET_BROKER_CLUSTER_INFO, RequestCode.WIPE_WRITE_PERM_OF_BROKER,
        RequestCode.ADD_WRITE_PERM_OF_BROKER, RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER,
        RequestCode.DELETE_TOPIC_IN_NAMESRV, RequestCode.REGISTER_TOPIC_IN_NAMESRV,
        RequestCode.GET_KVLIST_BY_NAMESPACE, RequestCode.GET_TOPICS_BY_CLUSTER,
        RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS, RequestCode.GET_UNIT_TOPIC_LIST,
        RequestCode.GET_HAS_UNIT_SUB_TOPIC_LIST, RequestCode.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST,
        RequestCode.UPDATE_NAMESRV_CONFIG, RequestCode.GET_NAMESRV_CONFIG, RequestCode.QUERY_DATA_VERSION,
        RequestCode.BROKER_HEARTBEAT, RequestCode.GET_BROKER_MEMBER_GROUP, RequestCode.NOTIFY_CONSUMER_IDS_CHANGED,
        RequestCode.RESET_CONSUMER_CLIENT_OFFSET, RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT,
        RequestCode.UPDATE_CONTROLLER_CONFIG, RequestCode.GET_CONTROLLER_CONFIG, RequestCode.CLEAN_BROKER_DATA,
        RequestCode.BROKER_CLOSE_CHANNEL_REQUEST, RequestCode.CHECK_NOT_ACTIVE_BROKER_REQUEST,
        RequestCode.GET_BROKER_LIVE_INFO_REQUEST, RequestCode.GET_SYNC_STATE_DATA_REQUEST,
        RequestCode.RAFT_BROKER_HEART_BEAT_EVENT_REQUEST,
        # Replication, retention, containers, cold data, RocksDB, static topics.
        RequestCode.EXCHANGE_BROKER_HA_INFO, RequestCode.RESET_MASTER_FLUSH_OFFSET,
        RequestCode.GET_BROKER_EPOCH_CACHE, RequestCode.NOTIFY_BROKER_ROLE_CHANGED, RequestCode.ADD_BROKER,
        RequestCode.REMOVE_BROKER, RequestCode.TRIGGER_DELETE_FILES, RequestCode.UPDATE_COLD_DATA_FLOW_CTR_CONFIG,
        RequestCode.REMOVE_COLD_DATA_FLOW_CTR_CONFIG, RequestCode.GET_COLD_DATA_FLOW_CTR_INFO,
        RequestCode.SET_COMMITLOG_READ_MODE, RequestCode.CHECK_ROCKSDB_CQ_WRITE_PROGRESS,
        RequestCode.EXPORT_ROCKSDB_CONFIG_TO_JSON, RequestCode.UPDATE_AND_CREATE_STATIC_TOPIC,
        # Administration that comes later.
        RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS, RequestCode.QUERY_CORRECTION_OFFSET,
        RequestCode.GET_BROKER_CONSUME_STATS, RequestCode.QUERY_CONSUME_QUEUE,
        # Codes that RocketMQ's own broker does not answer either.
        RequestCode.QUERY_BROKER_OFFSET, RequestCode.GET_TOPIC_CONFIG_LIST, RequestCode.GET_TOPIC_NAME_LIST,
        RequestCode.GET_CLIENT_CONFIG, RequestCode.SUSPEND_CONSUMER, RequestCode.RESUME_CONSUMER,
        RequestCode.RESET_CONSUMER_OFFSET_IN_CONSUMER, RequestCode.RESET_CONSUMER_OFFSET_IN_BROKER,
        RequestCode.ADJUST_CONSUMER_THREAD_POOL, RequestCode.WHO_CONSUME_THE_MESSAGE,
        RequestCode.REGISTER_FILTER_SERVER, RequestCode.REGISTER_MESSAGE_FILTER_CLASS,
    }
)  # fmt: skip


@pytest.fixture
def broker(tmp_path: Path) -> Broker:
    return Broker(broker_config(), store_config(tmp_path))


def test_every_code_is_routed_or_named_as_unsupported(broker: Broker) -> None:
    routed = {route.code for route in broker.routes.routes}
    assert routed | UNSUPPORTED == set(RequestCode)
    assert not routed & UNSUPPORTED


async def test_unsupported_codes_are_refused_by_name(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as (_, client):
        for code in sorted(UNSUPPORTED):
            response = await client.ask(code)
            assert response.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
            assert f"{int(code)} ({code.name}) not supported" in (response.remark or "")


def test_every_route_states_its_access_rule(broker: Broker) -> None:
    for route in broker.routes.routes:
        assert route.resource is not Resource.NONE, route.code.name
        assert route.action is not Action.NONE, route.code.name


def test_what_changes_something_needs_more_than_the_right_to_look(broker: Broker) -> None:
    looking = {Action.GET, Action.LIST}
    for route in broker.routes.routes:
        if route.code.name.startswith(("UPDATE_", "DELETE_", "INVOKE_", "CLEAN_", "SEND_", "LOCK_", "UNLOCK_")):
            assert route.action not in looking, route.code.name


def test_clients_and_operators_have_lanes_of_their_own(broker: Broker) -> None:
    lanes = {route.code: route.lane for route in broker.routes.routes}
    assert lanes[RequestCode.HEART_BEAT] is Lane.CLIENT
    assert lanes[RequestCode.CONSUMER_SEND_MSG_BACK] is Lane.SEND
    assert lanes[RequestCode.GET_BROKER_RUNTIME_INFO] is Lane.ADMIN
