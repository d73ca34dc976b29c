"""What a request needs in ACL 1.0: an admin, or permissions.

Source of what the usual requests need: RocketMQ 5.3.2, `PlainAccessResource.parse`.  There what is not listed needs a
signature and nothing more; here it needs what its route says: who publishes needs PUB of the topic, who consumes SUB of
topic and group, and who changes what others see has to be an admin.
"""

from collections.abc import Iterable
from typing import Final

from acl.access_request import AccessRequest, Needed
from acl.auth_model import RETRY_PREFIX, ResourceType
from acl.auth_model import Action as AuthAction
from acl.auth_requests import required
from acl.internal_topics import is_internal
from acl.permission import ADMIN_CODES, Permission
from remoting.bodies.heartbeat import read_heartbeat
from remoting.codes import RequestCode
from remoting.routes import Action

# What consumers do about themselves, though the route calls it a change.
_OWN_AFFAIRS: Final = frozenset(
    {RequestCode.HEART_BEAT, RequestCode.UNREGISTER_CLIENT, RequestCode.CHECK_CLIENT_CONFIG}
)
_GROUP_CODES: Final = frozenset(
    {
        RequestCode.UNREGISTER_CLIENT,
        RequestCode.GET_CONSUMER_LIST_BY_GROUP,
        RequestCode.UPDATE_CONSUMER_OFFSET,
        RequestCode.QUERY_CONSUMER_OFFSET,
    }
)
# Their topics and groups stand in the body.
_BODY_CODES: Final = frozenset(
    {
        RequestCode.BATCH_ACK_MESSAGE,
        RequestCode.CHECK_CLIENT_CONFIG,
        RequestCode.LOCK_BATCH_MQ,
        RequestCode.UNLOCK_BATCH_MQ,
        RequestCode.QUERY_ASSIGNMENT,
    }
)


def needs_admin(asked: AccessRequest) -> bool:
    """Whether only an admin may ask for it."""
    if asked.found:
        return any(one.resource.resource_type is ResourceType.CLUSTER for one in asked.found)
    if asked.code in ADMIN_CODES:
        return True
    action = asked.action
    if action is Action.UPDATE or action is Action.CREATE or action is Action.DELETE:
        return asked.code not in _OWN_AFFAIRS and asked.code not in _GROUP_CODES
    is_message = action in (Action.PUB, Action.SUB) or asked.code == RequestCode.QUERY_MESSAGE
    topic = asked.sent_to if is_message else None
    return topic is not None and is_internal(topic)


def needs(asked: AccessRequest) -> dict[str, Permission]:
    """The permissions that it needs: topics by their names, groups by those of their retry topics.

    Raises ProtocolError for a body that is none.
    """
    if asked.found or asked.code in _BODY_CODES:
        return _permissions(required(asked))
    code, action, fields = asked.code, asked.action, asked.fields
    found: dict[str, Permission] = {}
    topic = asked.sent_to
    if code == RequestCode.HEART_BEAT:
        for consumer in read_heartbeat(asked.body).consumer_data_set:
            found[retry_topic(consumer.group_name)] = Permission.SUB
            found.update((one.topic, Permission.SUB) for one in consumer.subscription_data_set)
        return found
    if code == RequestCode.CONSUMER_SEND_MSG_BACK:
        return {retry_topic(fields["group"]): Permission.SUB} if fields.get("group") else {}
    if code == RequestCode.QUERY_MESSAGE:
        return {topic: Permission.SUB} if topic else {}
    if action is Action.PUB and topic:
        found[topic] = Permission.SUB if topic.startswith(RETRY_PREFIX) else Permission.PUB
        found.update((carried, Permission.PUB) for carried in asked.carried_topics())
    elif action is Action.SUB or code in _GROUP_CODES:
        group = fields.get("consumerGroup") or fields.get("group")
        if topic:
            found[topic] = Permission.SUB
        if group:
            found[retry_topic(group)] = Permission.SUB
    return found


def _permissions(needed: Iterable[Needed]) -> dict[str, Permission]:
    """What ACL 1.0 has for it: PUB for whoever publishes, SUB for everybody else."""
    found: dict[str, Permission] = {}
    for one in needed:
        name = one.resource.name or ""
        if one.resource.resource_type is ResourceType.GROUP:
            found[retry_topic(name)] = Permission.SUB
        elif one.resource.resource_type is ResourceType.TOPIC:
            found[name] = Permission.PUB if AuthAction.PUB in one.actions else Permission.SUB
    return found


def retry_topic(group: str) -> str:
    """The resource that stands for a group."""
    return group if group.startswith(RETRY_PREFIX) else RETRY_PREFIX + group
