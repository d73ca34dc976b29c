"""What a policy has allowed already, so that it is not found out again for each message of a stream of them.

A grant holds for as long as nothing that was asked for changes: who, with which code, of which names, from where; and
for as long as the policy says the same, which is why its owner forgets all grants with every change.  Refusals are not
remembered.  RocketMQ keeps decisions for 60 s (`statefulAuthorizationCacheExpiredSecond`), whatever has changed since.
"""

from typing import Final

from acl.access_request import SHORT_NAMES, AccessRequest
from sprocket.common.limits import MAX_GROUP_CHARS, MAX_TOPIC_CHARS
from sprocket.remoting.codes import RequestCode

Grant = tuple[object, ...]
_MOST: Final = 8192
# What they need follows from the names of topic and group alone.
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
# And these, of the topic that they name and those that their messages reach beside it.
_SENDING: Final = SHORT_NAMES | {RequestCode.SEND_MESSAGE}


def grant(account: str, asked: AccessRequest) -> Grant | None:
    """What is remembered when `asked` is allowed to `account`; None for what is not asked often, or is no usual one."""
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
    # The text of an action: members of an enumeration take long to hash.
    return account, code, topic, group, other, asked.action._value_, asked.peer, asked.cluster


class Grants:
    """The grants of one policy.  Bounded: when there are too many, all are forgotten."""

    __slots__ = ("_known",)

    def __init__(self) -> None:
        self._known: set[Grant] = set()

    def __contains__(self, one: Grant | None) -> bool:
        return one in self._known

    def remember(self, one: Grant | None) -> None:
        """From now on it is known; None is nothing to remember."""
        if one is None:
            return
        if len(self._known) >= _MOST:
            self._known.clear()
        self._known.add(one)

    def forget(self) -> None:
        """Something has changed."""
        self._known.clear()
