"""What a request needs in ACL 2.0: which resources, and what it does to them.

What a request is about is read from where its handler reads it: the fields by the names of its header, the body by the
same decoder.  Stricter than the reference: what its list or its headers do not name (bodies, pulls and offsets of a
retry topic that is another group's, LITE_PULL_MESSAGE, replies, batches of acks, lists) needs what its route says, and
what names no resource needs the cluster.
Source: RocketMQ 5.3.3, `DefaultAuthorizationContextBuilder`, `RocketMQAction` and `RocketMQResource` of each header.
"""

from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from typing import Final

import msgspec

from acl.access_request import AccessRequest, Needed
from acl.auth.model import Action, Resource, ResourceType
from acl.internal_topics import is_internal
from sprocket.common.invariant import invariant
from sprocket.common.limits import MAX_TOPIC_CHARS
from sprocket.remoting import routes
from sprocket.remoting.bodies.heartbeat import read_heartbeat
from sprocket.remoting.bodies.requests import (
    read_assignment_query,
    read_batch_ack,
    read_check_client,
    read_group,
    read_group_list,
    read_lock_batch,
    read_request_mode,
    read_topic_list,
)
from sprocket.remoting.codes import RequestCode
from sprocket.remoting.message.topic_names import RETRY_PREFIX

Actions = tuple[Action, ...]
_GET: Final[Actions] = (Action.GET,)
_LIST: Final[Actions] = (Action.GET, Action.LIST)
_PUB: Final[Actions] = (Action.PUB,)
_SUB: Final[Actions] = (Action.SUB,)
_CREATE: Final[Actions] = (Action.CREATE,)
_UPDATE: Final[Actions] = (Action.UPDATE,)
_SUB_GET: Final[Actions] = (Action.SUB, Action.GET)
_SUB_UPDATE: Final[Actions] = (Action.SUB, Action.UPDATE)
_ROUTE: Final[Actions] = (Action.PUB, Action.SUB, Action.GET)
# What a route's action is in policies; a route that says nothing changes something.
_OF_ROUTE: Final[dict[routes.Action, Actions]] = {
    routes.Action.NONE: _UPDATE,
    routes.Action.PUB: _PUB,
    routes.Action.SUB: _SUB,
    routes.Action.CREATE: _CREATE,
    routes.Action.UPDATE: _UPDATE,
    routes.Action.DELETE: (Action.DELETE,),
    routes.Action.GET: _GET,
    routes.Action.LIST: _LIST,
}


def required(asked: AccessRequest) -> list[Needed]:
    """Everything that `asked` needs.  Raises ProtocolError for a body that is none."""
    if asked.found:
        return list(asked.found)
    special = _SPECIAL.get(asked.code)
    return _named(asked) if special is None else list(special(asked))


def topic_or_group(name: str | None, actions: Actions) -> Needed:
    """A topic, or the group whose retry topic it is."""
    if name is not None and name.startswith(RETRY_PREFIX):
        return Needed(Resource.group(name), actions)
    return Needed(Resource(ResourceType.TOPIC, name), actions)


def _group(name: str | None, actions: Actions) -> Needed:
    return Needed(Resource(ResourceType.GROUP, None) if name is None else Resource.group(name), actions)


def _cluster(asked: AccessRequest, actions: Actions) -> Needed:
    # The name None matches what stands for all clusters alone.
    return Needed(Resource(ResourceType.CLUSTER, asked.cluster or None), actions)


def _topic_of_group(topic: str | None, group: str | None, actions: Actions) -> Iterator[Needed]:
    """The topic that a group takes from, and the group: the first that is refused is the one that is told."""
    if topic is None or not topic.startswith(RETRY_PREFIX) or not group:
        yield topic_or_group(topic, actions)
    else:
        yield from _behind_retry_topic(topic, group, actions)
    yield _group(group, actions)


def _behind_retry_topic(topic: str, group: str, actions: Actions) -> Iterator[Needed]:
    """Of a retry topic of the group's own what stands behind it."""
    own = topic.removeprefix(RETRY_PREFIX)
    bare = group.removeprefix(RETRY_PREFIX)
    if own == bare:
        return
    # Popped messages that come again: of the group and of the topic that follows, after a plus sign or an underscore.
    if own.startswith((bare + "+", bare + "_")) and len(own) > len(bare) + 1:
        yield Needed(Resource.topic(own[len(bare) + 1 :]), actions)
    else:
        yield _group(topic, actions)


# Requests that the reference treats by themselves


def _route(asked: AccessRequest) -> Iterator[Needed]:
    topic = asked.fields.get("topic")
    is_retry = topic is not None and topic.startswith(RETRY_PREFIX)
    yield topic_or_group(topic, _SUB_GET if is_retry else _ROUTE)


def _send(asked: AccessRequest) -> Iterator[Needed]:
    topic = asked.sent_to
    # Into a retry topic a consumer sends back what it could not consume.
    if topic is not None and topic.startswith(RETRY_PREFIX):
        yield _group(topic, _SUB)
    else:
        yield _publishes(topic)
    if topic is not None and is_internal(topic):
        yield _cluster(asked, _UPDATE)
    for carried in asked.carried_topics():
        yield topic_or_group(carried, _PUB)


def _publishes(topic: str | None) -> Needed:
    # What is no name of a topic is not worth remembering, however often somebody asks.
    made = _published if topic is None or len(topic) <= MAX_TOPIC_CHARS else _published.__wrapped__
    return made(topic)


@lru_cache(maxsize=1024)
def _published(topic: str | None) -> Needed:
    return Needed(Resource(ResourceType.TOPIC, topic), _PUB)


def _end_transaction(asked: AccessRequest) -> Iterator[Needed]:
    """The handler asks again for the topic that the half message has."""
    topic = asked.fields.get("topic")
    if topic and topic.strip():
        yield Needed(Resource.topic(topic), _PUB)


def _send_back(asked: AccessRequest) -> Iterator[Needed]:
    """The handler asks again for the topic of the message."""
    yield _group(asked.fields.get("group"), _SUB)


def _pull(asked: AccessRequest) -> Iterator[Needed]:
    topic = asked.fields.get("topic")
    yield from _topic_of_group(topic, asked.fields.get("consumerGroup"), _SUB)
    if topic is not None and is_internal(topic):
        yield _cluster(asked, _GET)


def _query(asked: AccessRequest) -> Iterator[Needed]:
    topic = asked.fields.get("topic")
    yield topic_or_group(topic, _SUB_GET)
    if topic is not None and is_internal(topic):
        yield _cluster(asked, _GET)


def of_message(topic: str, action: Action, cluster: str, group: str | None = None) -> tuple[Needed, ...]:
    """What it needs to do something with a message of `topic`; handlers ask so once they have read it."""
    if group is None:
        needed = [topic_or_group(topic, (action,))]
    else:
        needed = list(_topic_of_group(topic, group, (action,)))
    if is_internal(topic):
        needed.append(Needed(Resource(ResourceType.CLUSTER, cluster or None), _GET))
    return tuple(needed)


def _heartbeat(asked: AccessRequest) -> Iterator[Needed]:
    for consumer in read_heartbeat(asked.body).consumer_data_set:
        yield _group(consumer.group_name, _SUB)
        for wanted in consumer.subscription_data_set:
            yield from _topic_of_group(wanted.topic, consumer.group_name, _SUB)


def _unregister(asked: AccessRequest) -> Iterator[Needed]:
    group = asked.fields.get("consumerGroup")
    if group and group.strip():
        yield _group(group, _SUB)


def _check_client(asked: AccessRequest) -> Iterator[Needed]:
    body = read_check_client(asked.body)
    yield _group(body.group, _SUB)
    if body.subscription_data is not None:
        yield from _topic_of_group(body.subscription_data.topic, body.group, _SUB)


def _members(asked: AccessRequest) -> Iterator[Needed]:
    yield _group(asked.fields.get("consumerGroup"), _SUB_GET)


def _offset_query(asked: AccessRequest) -> Iterator[Needed]:
    yield from _topic_of_group(asked.fields.get("topic"), asked.fields.get("consumerGroup"), _SUB_GET)


def _offset_update(asked: AccessRequest) -> Iterator[Needed]:
    yield from _topic_of_group(asked.fields.get("topic"), asked.fields.get("consumerGroup"), _SUB_UPDATE)


def _lock(asked: AccessRequest) -> Iterator[Needed]:
    body = read_lock_batch(asked.body)
    yield _group(body.consumer_group, _SUB)
    for topic in dict.fromkeys(queue.topic for queue in body.mq_set):
        yield from _topic_of_group(topic, body.consumer_group, _SUB)


# Requests whose resources stand in the body, of which the reference asks nothing


def _batch_ack(asked: AccessRequest) -> Iterator[Needed]:
    body = read_batch_ack(asked.body)
    for topic, group in dict.fromkeys((ack.t, ack.c) for ack in body.acks or ()):
        yield from _topic_of_group(topic, group, _SUB)


def _assignment(asked: AccessRequest) -> Iterator[Needed]:
    body = read_assignment_query(asked.body)
    yield from _topic_of_group(body.topic, body.consumer_group, _SUB)


def _request_mode(asked: AccessRequest) -> Iterator[Needed]:
    body = read_request_mode(asked.body)
    yield from _topic_of_group(body.topic, body.consumer_group, _UPDATE)


def _topic_list(asked: AccessRequest) -> Iterator[Needed]:
    for config in read_topic_list(asked.body):
        yield topic_or_group(config.topic_name, _CREATE)


def _new_group(asked: AccessRequest) -> Iterator[Needed]:
    yield _group(read_group(asked.body).group_name, _CREATE)


def _group_list(asked: AccessRequest) -> Iterator[Needed]:
    for config in read_group_list(asked.body):
        yield _group(config.group_name, _CREATE)


def _clone(asked: AccessRequest) -> Iterator[Needed]:
    fields = asked.fields
    yield _group(fields.get("srcGroup"), _GET)
    yield _group(fields.get("destGroup"), _UPDATE)
    if "topic" in fields:
        yield topic_or_group(fields["topic"], _UPDATE)


_SPECIAL: Final[dict[int, Callable[[AccessRequest], Iterator[Needed]]]] = {
    RequestCode.GET_ROUTEINFO_BY_TOPIC: _route,
    RequestCode.SEND_MESSAGE: _send,
    RequestCode.SEND_MESSAGE_V2: _send,
    RequestCode.SEND_BATCH_MESSAGE: _send,
    RequestCode.SEND_REPLY_MESSAGE: _send,
    RequestCode.SEND_REPLY_MESSAGE_V2: _send,
    RequestCode.END_TRANSACTION: _end_transaction,
    RequestCode.CONSUMER_SEND_MSG_BACK: _send_back,
    RequestCode.PULL_MESSAGE: _pull,
    RequestCode.LITE_PULL_MESSAGE: _pull,
    RequestCode.POP_MESSAGE: _pull,
    RequestCode.PEEK_MESSAGE: _pull,
    RequestCode.NOTIFICATION: _pull,
    RequestCode.ACK_MESSAGE: _pull,
    RequestCode.CHANGE_MESSAGE_INVISIBLETIME: _pull,
    RequestCode.QUERY_MESSAGE: _query,
    RequestCode.HEART_BEAT: _heartbeat,
    RequestCode.UNREGISTER_CLIENT: _unregister,
    RequestCode.CHECK_CLIENT_CONFIG: _check_client,
    RequestCode.GET_CONSUMER_LIST_BY_GROUP: _members,
    RequestCode.QUERY_CONSUMER_OFFSET: _offset_query,
    RequestCode.UPDATE_CONSUMER_OFFSET: _offset_update,
    RequestCode.LOCK_BATCH_MQ: _lock,
    RequestCode.UNLOCK_BATCH_MQ: _lock,
    RequestCode.BATCH_ACK_MESSAGE: _batch_ack,
    RequestCode.QUERY_ASSIGNMENT: _assignment,
    RequestCode.SET_MESSAGE_REQUEST_MODE: _request_mode,
    RequestCode.UPDATE_AND_CREATE_TOPIC_LIST: _topic_list,
    RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: _new_group,
    RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST: _group_list,
    RequestCode.CLONE_GROUP_OFFSET: _clone,
}

# Those whose resources stand in the body.
BODY_CODES: Final = frozenset(
    {
        RequestCode.HEART_BEAT,
        RequestCode.CHECK_CLIENT_CONFIG,
        RequestCode.LOCK_BATCH_MQ,
        RequestCode.UNLOCK_BATCH_MQ,
        RequestCode.BATCH_ACK_MESSAGE,
        RequestCode.QUERY_ASSIGNMENT,
        RequestCode.SET_MESSAGE_REQUEST_MODE,
        RequestCode.UPDATE_AND_CREATE_TOPIC_LIST,
        RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP,
        RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST,
    }
)

# All others: fields that name a resource, and what stands between several names of one field.  What has none of
# its fields, or is not listed, needs the cluster.
_Fields = tuple[tuple[str, ResourceType, str], ...]
_TOPIC: Final[_Fields] = (("topic", ResourceType.TOPIC, ""),)
_GROUP: Final[_Fields] = (("consumerGroup", ResourceType.GROUP, ""),)
_OWN_GROUP: Final[_Fields] = (("group", ResourceType.GROUP, ""),)
_CLUSTER: Final[_Fields] = (("clusterName", ResourceType.CLUSTER, ""),)
_FIELDS: Final[dict[int, _Fields]] = {
    RequestCode.RECALL_MESSAGE: _TOPIC,
    RequestCode.UPDATE_AND_CREATE_TOPIC: _TOPIC,
    RequestCode.SEARCH_OFFSET_BY_TIMESTAMP: _TOPIC,
    RequestCode.GET_MAX_OFFSET: _TOPIC,
    RequestCode.GET_MIN_OFFSET: _TOPIC,
    RequestCode.GET_EARLIEST_MSG_STORETIME: _TOPIC,
    RequestCode.VIEW_MESSAGE_BY_ID: _TOPIC,
    RequestCode.GET_TOPIC_STATS_INFO: _TOPIC,
    RequestCode.DELETE_TOPIC_IN_BROKER: _TOPIC,
    RequestCode.QUERY_TOPIC_CONSUME_BY_WHO: _TOPIC,
    RequestCode.GET_TOPIC_CONFIG: _TOPIC,
    RequestCode.RESUME_CHECK_HALF_MESSAGE: _TOPIC,
    RequestCode.POLLING_INFO: _GROUP + _TOPIC,
    RequestCode.CONSUME_MESSAGE_DIRECTLY: _GROUP + _TOPIC,
    RequestCode.QUERY_CONSUME_QUEUE: _GROUP + _TOPIC,
    RequestCode.GET_CONSUME_STATS: (*_GROUP, *_TOPIC, ("topicList", ResourceType.TOPIC, ";")),
    RequestCode.GET_CONSUMER_CONNECTION_LIST: _GROUP,
    RequestCode.GET_CONSUMER_RUNNING_INFO: _GROUP,
    RequestCode.DELETE_SUBSCRIPTIONGROUP: (("groupName", ResourceType.GROUP, ""),),
    RequestCode.INVOKE_BROKER_TO_RESET_OFFSET: _OWN_GROUP + _TOPIC,
    RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS: _OWN_GROUP + _TOPIC,
    RequestCode.QUERY_CONSUME_TIME_SPAN: _OWN_GROUP + _TOPIC,
    RequestCode.QUERY_TOPICS_BY_CONSUMER: _OWN_GROUP,
    RequestCode.QUERY_SUBSCRIPTION_BY_CONSUMER: _OWN_GROUP + _TOPIC,
    RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG: _OWN_GROUP,
    RequestCode.UPDATE_AND_GET_GROUP_FORBIDDEN: _OWN_GROUP + _TOPIC,
    RequestCode.QUERY_CORRECTION_OFFSET: (
        ("compareGroup", ResourceType.GROUP, ""),
        *_TOPIC,
        ("filterGroups", ResourceType.GROUP, ","),
    ),
    RequestCode.REGISTER_BROKER: _CLUSTER,
    RequestCode.UNREGISTER_BROKER: _CLUSTER,
    RequestCode.BROKER_HEARTBEAT: _CLUSTER,
    RequestCode.QUERY_DATA_VERSION: _CLUSTER,
    RequestCode.GET_BROKER_MEMBER_GROUP: _CLUSTER,
    RequestCode.DELETE_TOPIC_IN_NAMESRV: _CLUSTER,
    RequestCode.GET_TOPICS_BY_CLUSTER: (("cluster", ResourceType.CLUSTER, ""),),
}

# These name no topic or group, because they answer about all of them: they need the cluster.
_LISTS: Final = frozenset(
    {
        RequestCode.GET_ALL_TOPIC_CONFIG,
        RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG,
        RequestCode.GET_ALL_MESSAGE_REQUEST_MODE,
        RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER,
        RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER,
        RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS,
        RequestCode.GET_UNIT_TOPIC_LIST,
        RequestCode.GET_HAS_UNIT_SUB_TOPIC_LIST,
        RequestCode.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST,
    }
)


def check_rules(served: Iterable[routes.Route]) -> None:
    """Raise InvariantError unless there is a rule for every route of a server.

    Servers call it when they are made, with or without access control: a route without a rule never gets far.
    """
    for route in served:
        reason = _missing_rule(route)
        invariant(not reason, f"access control has no rule for {route.code.name}: {reason}")


def _missing_rule(route: routes.Route) -> str:
    if route.resource is routes.Resource.NONE:
        return "its route declares no resource"
    if route.action is routes.Action.NONE:
        return "its route declares no action"
    code = route.code
    if code in _FIELDS:
        known = {field.encode_name for field in msgspec.structs.fields(route.header)}
        unknown = [field for field, *_ in _FIELDS[code] if field not in known]
        return f"its header has no field {', '.join(unknown)}" if unknown else ""
    if route.resource is routes.Resource.CLUSTER or code in _SPECIAL or code in _LISTS:
        return ""
    return f"nothing says where it names its {route.resource.value}"


def _named(asked: AccessRequest) -> list[Needed]:
    actions = _OF_ROUTE[asked.action]
    needed = []
    for field, resource_type, separator in _FIELDS.get(asked.code, ()):
        value = asked.fields.get(field)
        if value is None:
            continue
        for name in value.split(separator) if separator else (value,):
            if not name and separator:
                continue
            if resource_type is ResourceType.TOPIC:
                needed.append(topic_or_group(name, actions))
            elif resource_type is ResourceType.GROUP:
                needed.append(_group(name, actions))
            else:
                needed.append(Needed(Resource(resource_type, name), actions))
    return needed or [_cluster(asked, actions)]
