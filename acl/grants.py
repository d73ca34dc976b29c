"""Grants: what a policy has allowed, remembered so that a stream of messages is not checked one by one.

A grant is valid while nothing in the request changes: account, code, names, address.  It is also valid only while the
policy is unchanged: its owner forgets all grants with every change.  Refusals are not remembered.  RocketMQ keeps
decisions for 60 s (`statefulAuthorizationCacheExpiredSecond`), whatever has changed since.
"""

from typing import Final

from acl.access_request import SHORT_NAMES, AccessRequest
from sprocket.common.limits import MAX_GROUP_CHARS, MAX_TOPIC_CHARS
from sprocket.remoting.codes import RequestCode

Grant = tuple[object, ...]
MAX_GRANTS: Final = 8192
# Their needs follow from the names of topic and group alone.
_CONSUMING: Final = frozenset(
    {
        RequestCode.PULL_MESSAGE,
        RequestCode.LITE_PULL_MESSAGE,
        RequestCode.POP_MESSAGE,
        RequestCode.NOTIFICATION,
        RequestCode.ACK_MESSAGE,
        RequestCode.CHANGE_MESSAGE_INVISIBLETIME,
    }
)
# Their needs also follow from the topics that their messages reach besides their own.
_SENDING: Final = SHORT_NAMES | {RequestCode.SEND_MESSAGE}


def grant(account: str, asked: AccessRequest) -> Grant | None:
    """Return what to remember when `asked` is allowed to `account`; None for rare or unusual requests."""
    if asked.found:
        return None
    fields, code = asked.fields, asked.code
    if code not in _CONSUMING and (code not in _SENDING or asked.carried_topics()):
        return None
    topic, group, other = asked.sent_to, fields.get("consumerGroup"), fields.get("group")
    if topic is None or len(topic) > MAX_TOPIC_CHARS or len(group or other or "") > MAX_GROUP_CHARS:
        return None
    if group is not None and other is not None:
        return None
    # The action's text: hashing a member of an enumeration takes long.
    return account, code, topic, group, other, asked.action._value_, asked.peer, asked.cluster


class Grants:
    """Grants of one policy.  Bounded: when there are too many, all are forgotten."""

    __slots__ = ("_known",)

    def __init__(self) -> None:
        self._known: set[Grant] = set()

    def __contains__(self, one: Grant | None) -> bool:
        return one in self._known

    def remember(self, one: Grant | None) -> None:
        """Remember a grant; None is ignored."""
        if one is None:
            return
        if len(self._known) >= MAX_GRANTS:
            self._known.clear()
        self._known.add(one)

    def forget(self) -> None:
        """Forget all grants, because something has changed."""
        self._known.clear()
