"""What a request asks for, as far as access control goes: who says to have sent it, and what it needs.

Source of what the usual requests need: RocketMQ 5.3.2, `PlainAccessResource.parse`.  There what is not listed needs a
signature and nothing more; here it needs what its route says: who publishes needs PUB of the topic, who consumes SUB of
topic and group, and who changes what others see has to be an admin.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from acl.permission import ADMIN_CODES, Permission
from acl.remote_addresses import Parts
from remoting.bodies.client import HeartbeatData
from remoting.codes import RequestCode
from remoting.credentials import ACCESS_KEY, SIGNATURE
from remoting.fastjson import loads
from remoting.routes import Action

RETRY_PREFIX: Final = "%RETRY%"
TRACE_TOPIC: Final = "RMQ_SYS_TRACE_TOPIC"
_CHANGES: Final = frozenset({Action.CREATE, Action.UPDATE, Action.DELETE})
# What consumers do about themselves, though the route calls it a change.
_OWN_AFFAIRS: Final = frozenset(
    {RequestCode.HEART_BEAT, RequestCode.UNREGISTER_CLIENT, RequestCode.CHECK_CLIENT_CONFIG}
)


@dataclass(frozen=True, slots=True)
class AccessRequest:
    """One request, of which nothing is believed yet; `action` is that of its route."""

    code: int
    version: int
    peer: Parts | None
    fields: Mapping[str, str]
    body: bytes
    action: Action = Action.NONE

    @property
    def access_key(self) -> str | None:
        """The account that it names."""
        return self.fields.get(ACCESS_KEY)

    @property
    def signature(self) -> str | None:
        """What is to prove it."""
        return self.fields.get(SIGNATURE)

    def needs_admin(self) -> bool:
        """Whether only an admin may ask for it."""
        return self.code in ADMIN_CODES or (
            self.action in _CHANGES and self.code not in _OWN_AFFAIRS and self.code not in _GROUP_CODES
        )

    def needs(self) -> dict[str, Permission]:
        """The permissions that it needs: topics by their names, groups by those of their retry topics.

        Raises ProtocolError for a heartbeat that is none.
        """
        return _needs(self.code, self.action, self.fields, self.body)


def _needs(code: int, action: Action, fields: Mapping[str, str], body: bytes) -> dict[str, Permission]:
    needs: dict[str, Permission] = {}
    topic = fields.get("b") if code in _SHORT_NAMES else fields.get("topic")
    if code == RequestCode.HEART_BEAT:
        for consumer in loads(body, HeartbeatData).consumer_data_set:
            needs[retry_topic(consumer.group_name)] = Permission.SUB
            needs.update((one.topic, Permission.SUB) for one in consumer.subscription_data_set)
        return needs
    if code == RequestCode.CONSUMER_SEND_MSG_BACK:
        return {retry_topic(fields["group"]): Permission.SUB} if fields.get("group") else {}
    if code == RequestCode.QUERY_MESSAGE:
        return {topic: Permission.SUB} if topic else {}
    if action is Action.PUB and topic:
        needs[topic] = Permission.SUB if topic.startswith(RETRY_PREFIX) else Permission.PUB
    elif action is Action.SUB or code in _GROUP_CODES:
        group = fields.get("consumerGroup") or fields.get("group")
        if topic:
            needs[topic] = Permission.SUB
        if group:
            needs[retry_topic(group)] = Permission.SUB
    return needs


def retry_topic(group: str) -> str:
    """The resource that stands for a group."""
    return group if group.startswith(RETRY_PREFIX) else RETRY_PREFIX + group


_SHORT_NAMES: Final = frozenset({RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE})
_GROUP_CODES: Final = frozenset(
    {
        RequestCode.UNREGISTER_CLIENT,
        RequestCode.GET_CONSUMER_LIST_BY_GROUP,
        RequestCode.UPDATE_CONSUMER_OFFSET,
        RequestCode.QUERY_CONSUMER_OFFSET,
    }
)
