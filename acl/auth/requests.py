"""Permissions that a request needs in ACL 2.0: resources, and actions on them.

A request's resources are read from where its handler reads them: fields by the names of its header, the body by the
same decoder.  Sprocket is stricter than RocketMQ.  What RocketMQ's list or headers do not name needs what its route
declares: bodies, pulls and offsets of another group's retry topic, LITE_PULL_MESSAGE, replies, batches of acks, lists.
A request that names no resource needs the cluster.
Source: RocketMQ 5.3.3, `DefaultAuthorizationContextBuilder`, `RocketMQAction` and `RocketMQResource` of each header.
"""

from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from typing import Final

import msgspec

from acl.access_request import ANY_NAMESPACE, AccessRequest, Needed
from acl.auth.account_requests import ACCOUNT_CODES, account_needs
from acl.auth.model import Action, Resource, ResourceType
from sprocket.common.invariant import invariant
from sprocket.common.limits import MAX_TOPIC_CHARS
from sprocket.remoting import routes
from sprocket.remoting.bodies.heartbeat import read_heartbeat
from sprocket.remoting.bodies.requests import (
    read_assignment_query,
    read_batch_ack,
    read_check_client,
    read_doomed_groups,
    read_doomed_topics,
    read_group,
    read_group_list,
    read_lite_subscriptions,
    read_lock_batch,
    read_request_mode,
    read_topic_list,
)
from sprocket.remoting.codes import RequestCode
from sprocket.remoting.message.namespaces import namespace_of, with_namespace
from sprocket.remoting.message.topic_names import (
    RETRY_PREFIX,
    ROCKSDB_OFFSET_TOPIC,
    SCHEDULE_TOPIC,
    SYSTEM_TOPIC_PREFIX,
    TRANS_CHECK_MAX_TIME_TOPIC,
    TRANS_HALF_TOPIC,
    TRANS_OP_HALF_TOPIC,
)

Actions = tuple[Action, ...]
_GET: Final[Actions] = (Action.GET,)
_LIST: Final[Actions] = (Action.GET, Action.LIST)
_PUB: Final[Actions] = (Action.PUB,)
_SUB: Final[Actions] = (Action.SUB,)
_CREATE: Final[Actions] = (Action.CREATE,)
_UPDATE: Final[Actions] = (Action.UPDATE,)
_DELETE: Final[Actions] = (Action.DELETE,)
_SUB_GET: Final[Actions] = (Action.SUB, Action.GET)
_SUB_UPDATE: Final[Actions] = (Action.SUB, Action.UPDATE)
_ROUTE: Final[Actions] = (Action.PUB, Action.SUB, Action.GET)
# A route's action in terms of policies; a route without one changes something.
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


# Topics in which brokers keep messages on their way to others: to read or write them bypasses those others' rules.
# Source of the names: RocketMQ 5.3.3, `TopicValidator`, `TimerMessageStore`, `PopAckConstants`.
_INTERNAL_TOPICS: Final = frozenset(
    {
        SCHEDULE_TOPIC,
        TRANS_HALF_TOPIC,
        TRANS_OP_HALF_TOPIC,
        TRANS_CHECK_MAX_TIME_TOPIC,
        ROCKSDB_OFFSET_TOPIC,
    }
)


def required(asked: AccessRequest) -> list[Needed]:
    """Return everything that `asked` needs.  Raises ProtocolError for an invalid body."""
    if asked.found:
        return list(asked.found)
    special = _SPECIAL.get(asked.code)
    return _named(asked) if special is None else list(special(asked))


def _is_internal(topic: str) -> bool:
    """Return whether only those with rights on the cluster may read and write `topic`."""
    return topic in _INTERNAL_TOPICS or topic.startswith(SYSTEM_TOPIC_PREFIX)


def topic_or_group(name: str | None, actions: Actions) -> Needed:
    """Return the need for a topic, or for the group whose retry topic it is."""
    if name is not None and name.startswith(RETRY_PREFIX):
        return Needed(Resource.group(name), actions)
    return Needed(Resource(ResourceType.TOPIC, name), actions)


def _group(name: str | None, actions: Actions) -> Needed:
    return Needed(Resource(ResourceType.GROUP, None) if name is None else Resource.group(name), actions)


def _cluster(asked: AccessRequest, actions: Actions) -> Needed:
    return Needed(asked.cluster_resource, actions)


def _topic_of_group(topic: str | None, group: str | None, actions: Actions) -> Iterator[Needed]:
    """Yield the topic that a group consumes, and the group.  The first one refused is named in the refusal."""
    if topic is None or not topic.startswith(RETRY_PREFIX) or not group:
        yield topic_or_group(topic, actions)
    else:
        yield from _under_retry_topic(topic, group, actions)
    yield _group(group, actions)


def _under_retry_topic(topic: str, group: str, actions: Actions) -> Iterator[Needed]:
    """Yield what a retry topic of the group itself refers to."""
    own = topic.removeprefix(RETRY_PREFIX)
    bare = group.removeprefix(RETRY_PREFIX)
    if own == bare:
        return
    # Popped messages that are redelivered: of the group, and of the topic that follows a plus sign or an underscore.
    if own.startswith((bare + "+", bare + "_")) and len(own) > len(bare) + 1:
        yield Needed(Resource.topic(own[len(bare) + 1 :]), actions)
    else:
        yield _group(topic, actions)


# Requests that RocketMQ treats one by one


def _route(asked: AccessRequest) -> Iterator[Needed]:
    topic = asked.fields.get("topic")
    is_retry = topic is not None and topic.startswith(RETRY_PREFIX)
    yield topic_or_group(topic, _SUB_GET if is_retry else _ROUTE)


def _send(asked: AccessRequest) -> Iterator[Needed]:
    topic = asked.sent_to
    # A consumer sends back into a retry topic what it could not consume.
    if topic is not None and topic.startswith(RETRY_PREFIX):
        yield _group(topic, _SUB)
    else:
        yield _publishes(topic)
    if topic is not None and _is_internal(topic):
        yield _cluster(asked, _UPDATE)
    for carried in asked.carried_topics():
        yield topic_or_group(carried, _PUB)


def _publishes(topic: str | None) -> Needed:
    # Do not cache an invalid topic name, however often it is asked for.
    made = _published if topic is None or len(topic) <= MAX_TOPIC_CHARS else _published.__wrapped__
    return made(topic)


@lru_cache(maxsize=1024)
def _published(topic: str | None) -> Needed:
    return Needed(Resource(ResourceType.TOPIC, topic), _PUB)


def _end_transaction(asked: AccessRequest) -> Iterator[Needed]:
    """The handler checks again, for the topic of the half message.

    Java's client leaves out the namespace here: that of the account stands for it.  Asked by a broker, it names the
    topic of all half messages, which nobody needs a right on.
    """
    topic = asked.fields.get("topic")
    if topic and topic.strip() and topic != TRANS_HALF_TOPIC:
        own = "" if namespace_of(topic) else namespace_of(asked.user)
        yield Needed(Resource.topic(topic), _PUB, Resource.topic(with_namespace(own, topic)))


def _send_back(asked: AccessRequest) -> Iterator[Needed]:
    """The handler checks again, for the topic of the message."""
    yield _group(asked.fields.get("group"), _SUB)


def _pull(asked: AccessRequest) -> Iterator[Needed]:
    topic = asked.fields.get("topic")
    yield from _topic_of_group(topic, asked.fields.get("consumerGroup"), _SUB)
    if topic is not None and _is_internal(topic):
        yield _cluster(asked, _GET)


def _query(asked: AccessRequest) -> Iterator[Needed]:
    topic = asked.fields.get("topic")
    yield topic_or_group(topic, _SUB_GET)
    if topic is not None and _is_internal(topic):
        yield _cluster(asked, _GET)


def of_message(topic: str, action: Action, cluster: str, group: str | None = None) -> tuple[Needed, ...]:
    """Return what an action on a message of `topic` needs.  Handlers ask once they have read the message."""
    if group is None:
        needed = [topic_or_group(topic, (action,))]
    else:
        needed = list(_topic_of_group(topic, group, (action,)))
    if _is_internal(topic):
        needed.append(Needed(Resource(ResourceType.CLUSTER, cluster or None), _GET))
    return tuple(needed)


def _heartbeat(asked: AccessRequest) -> Iterator[Needed]:
    for consumer in read_heartbeat(asked.body).consumer_data_set:
        yield _group(consumer.group_name, _SUB)
        for wanted in consumer.subscription_data_set:
            yield from _topic_of_group(wanted.topic, consumer.group_name, _SUB)


def _lite_subscriptions(asked: AccessRequest) -> Iterator[Needed]:
    """RocketMQ asks for nothing here; its proxy asks for the same."""
    changes = read_lite_subscriptions(asked.body).subscription_set
    if not changes:
        yield _cluster(asked, _SUB)
    for topic, group in dict.fromkeys((change.topic, change.group) for change in changes):
        yield from _topic_of_group(topic, group, _SUB)


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


# Requests with resources in the body, which RocketMQ does not check


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


def _doomed_topics(asked: AccessRequest) -> Iterator[Needed]:
    for topic in read_doomed_topics(asked.body):
        yield topic_or_group(topic, _DELETE)


def _doomed_groups(asked: AccessRequest) -> Iterator[Needed]:
    for group in read_doomed_groups(asked.body).group_name_list:
        yield _group(group, _DELETE)


def _clone(asked: AccessRequest) -> Iterator[Needed]:
    fields = asked.fields
    yield _group(fields.get("srcGroup"), _GET)
    yield _group(fields.get("destGroup"), _UPDATE)
    if "topic" in fields:
        yield topic_or_group(fields["topic"], _UPDATE)


# Requests whose responses name many topics, groups or users: see `FILTERED`


def _all_names(asked: AccessRequest) -> Iterator[Needed]:
    yield Needed(asked.cluster_resource, _LIST, ANY_NAMESPACE)


def _names_of_cluster(asked: AccessRequest) -> Iterator[Needed]:
    yield Needed(Resource(ResourceType.CLUSTER, asked.fields.get("cluster")), _LIST, ANY_NAMESPACE)


def _quotas(asked: AccessRequest) -> Iterator[Needed]:
    yield Needed(asked.cluster_resource, _GET, ANY_NAMESPACE)


def _brokers(asked: AccessRequest) -> Iterator[Needed]:
    """Addresses of brokers, which routes show, too: the tools of a namespace need them."""
    yield Needed(asked.cluster_resource, _GET, ANY_NAMESPACE)


_Rule = Callable[[AccessRequest], Iterator[Needed]]
# Rules for codes with resources in the body.
_OF_BODY: Final[dict[int, _Rule]] = {
    RequestCode.HEART_BEAT: _heartbeat,
    RequestCode.CHECK_CLIENT_CONFIG: _check_client,
    RequestCode.LOCK_BATCH_MQ: _lock,
    RequestCode.UNLOCK_BATCH_MQ: _lock,
    RequestCode.BATCH_ACK_MESSAGE: _batch_ack,
    RequestCode.QUERY_ASSIGNMENT: _assignment,
    RequestCode.SET_MESSAGE_REQUEST_MODE: _request_mode,
    RequestCode.UPDATE_AND_CREATE_TOPIC_LIST: _topic_list,
    RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: _new_group,
    RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST: _group_list,
    RequestCode.DELETE_TOPIC_IN_BROKER_LIST: _doomed_topics,
    RequestCode.DELETE_SUBSCRIPTION_GROUP_LIST: _doomed_groups,
    RequestCode.LITE_SUBSCRIPTION_CTL: _lite_subscriptions,
}
BODY_CODES: Final = frozenset(_OF_BODY)
_SPECIAL: Final[dict[int, _Rule]] = {
    **dict.fromkeys(ACCOUNT_CODES, account_needs),
    **_OF_BODY,
    RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER: _all_names,
    RequestCode.GET_TOPICS_BY_CLUSTER: _names_of_cluster,
    RequestCode.GET_ALL_TOPIC_CONFIG: _all_names,
    RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: _all_names,
    RequestCode.GET_NAMESPACES: _all_names,
    RequestCode.GET_SCHEDULES: _all_names,
    RequestCode.GET_ALL_QUOTAS: _quotas,
    RequestCode.GET_QUOTA_USAGE: _quotas,
    RequestCode.GET_BROKER_CLUSTER_INFO: _brokers,
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
    RequestCode.UNREGISTER_CLIENT: _unregister,
    RequestCode.GET_CONSUMER_LIST_BY_GROUP: _members,
    RequestCode.QUERY_CONSUMER_OFFSET: _offset_query,
    RequestCode.UPDATE_CONSUMER_OFFSET: _offset_update,
    RequestCode.CLONE_GROUP_OFFSET: _clone,
}

# All other codes: fields that name a resource, and the separator between several names in one field.  A request
# without any of its fields, or with an unlisted code, needs the cluster.
_Fields = tuple[tuple[str, ResourceType, str], ...]
_TOPIC: Final[_Fields] = (("topic", ResourceType.TOPIC, ""),)
_GROUP: Final[_Fields] = (("consumerGroup", ResourceType.GROUP, ""),)
_OWN_GROUP: Final[_Fields] = (("group", ResourceType.GROUP, ""),)
_CLUSTER: Final[_Fields] = (("clusterName", ResourceType.CLUSTER, ""),)
_FIELDS: Final[dict[int, _Fields]] = {
    RequestCode.RECALL_MESSAGE: _TOPIC,
    RequestCode.SET_SCHEDULE: _TOPIC,
    RequestCode.DELETE_SCHEDULE: _TOPIC,
    RequestCode.PAUSE_SCHEDULE: _TOPIC,
    RequestCode.TRIGGER_SCHEDULE: _TOPIC,
    RequestCode.GET_SCHEDULE: _TOPIC,
    RequestCode.UPDATE_AND_CREATE_TOPIC: _TOPIC,
    RequestCode.UPDATE_AND_CREATE_STATIC_TOPIC: _TOPIC,
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
    RequestCode.POP_LITE_MESSAGE: _GROUP + _TOPIC,
    RequestCode.GET_PARENT_TOPIC_INFO: _TOPIC,
    RequestCode.GET_LITE_TOPIC_INFO: (("parentTopic", ResourceType.TOPIC, ""),),
    RequestCode.GET_LITE_CLIENT_INFO: (("parentTopic", ResourceType.TOPIC, ""), *_OWN_GROUP),
    RequestCode.GET_LITE_GROUP_INFO: _OWN_GROUP,
    RequestCode.TRIGGER_LITE_DISPATCH: _OWN_GROUP,
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
    RequestCode.CONTROLLER_ELECT_MASTER: _CLUSTER,
    RequestCode.CONTROLLER_GET_NEXT_BROKER_ID: _CLUSTER,
    RequestCode.CONTROLLER_APPLY_BROKER_ID: _CLUSTER,
    RequestCode.CONTROLLER_REGISTER_BROKER: _CLUSTER,
    RequestCode.CLEAN_BROKER_DATA: _CLUSTER,
    RequestCode.DELETE_TOPIC_IN_NAMESRV: _CLUSTER,
}

# Handlers of these leave out the names that the caller may not see (`acl.visible_names.visible_names`).
FILTERED: Final = frozenset(
    {
        RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER,
        RequestCode.GET_TOPICS_BY_CLUSTER,
        RequestCode.GET_ALL_TOPIC_CONFIG,
        RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG,
        RequestCode.AUTH_LIST_USER,
        RequestCode.AUTH_LIST_ACL,
        RequestCode.GET_NAMESPACES,
        RequestCode.GET_SCHEDULES,
        RequestCode.GET_ALL_QUOTAS,
        RequestCode.GET_QUOTA_USAGE,
    }
)

# These name no topic or group, because their responses cover all: they need the cluster.
_LISTS: Final = frozenset(
    {
        RequestCode.GET_ALL_MESSAGE_REQUEST_MODE,
        RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER,
        RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS,
        RequestCode.GET_UNIT_TOPIC_LIST,
        RequestCode.GET_HAS_UNIT_SUB_TOPIC_LIST,
        RequestCode.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST,
    }
)


def check_rules(served: Iterable[routes.Route]) -> None:
    """Raise InvariantError unless every route of a server has a rule.

    Servers call it when they are built, with or without access control, so a route without a rule is found early.
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
