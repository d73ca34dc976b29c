"""The limits of namespaces, as planners and the handlers that create topics and groups ask for them.

A name counts in the namespace that it begins with.  Retry topics and dead-letter topics count in none: a group brings
them along, and the limit of groups bounds them.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Final

import msgspec

from broker.namespace.namespace_table import NamespaceTable
from sprocket.common.errors import RequestError
from sprocket.common.refusal_reasons import Reason
from sprocket.remoting.bodies.namespace import NamespacePolicy
from sprocket.remoting.codes import ResponseCode
from sprocket.remoting.message import properties as names
from sprocket.remoting.message.message_type import DECIDING, MessageType, type_of
from sprocket.remoting.message.namespaces import SEPARATOR, namespace_of
from sprocket.remoting.message.topic_names import DLQ_PREFIX, RETRY_PREFIX

# The properties that decide the type of a message, by their names.
_DECIDING: Final = {name: f"{name}{names.NAME_END}".encode() for name in DECIDING}


def brought_along(topic: str) -> bool:
    """Return whether brokers create a topic for a group: a retry topic, or one of dead letters."""
    return topic.startswith((RETRY_PREFIX, DLQ_PREFIX))


def count_in(namespace: str, known: Iterable[str]) -> int:
    """Return how many of the names of topics or of groups are in a namespace."""
    prefix = namespace + SEPARATOR
    return sum(name.startswith(prefix) for name in known)


def refusal(policy: NamespacePolicy, text: str, code: ResponseCode = ResponseCode.INVALID_PARAMETER) -> RequestError:
    """Return the refusal of what a namespace does not allow."""
    return RequestError(code, f"namespace {policy.name}: {text}", Reason.NAMESPACE)


def _decided(properties: bytes, present: Mapping[str, bytes]) -> frozenset[str]:
    """Return the names of those properties of a message, of all that are `present`, that decide its type."""
    found = {name: names.find_last(properties, key) for name, key in present.items()}
    if (found.get(names.TRANSACTION_PREPARED) or b"").lower() != b"true":
        found[names.TRANSACTION_PREPARED] = None
    return frozenset(name for name, value in found.items() if value)


class SendLimits(msgspec.Struct, frozen=True):
    """What the messages of one topic may be, because of its namespace; 0 and no types are no limit."""

    policy: NamespacePolicy

    @property
    def allowed_types(self) -> frozenset[str]:
        """The types that messages may have."""
        return frozenset(self.policy.message_types or MessageType)

    def check(self, properties: str | None, body_bytes: int, *, is_batch: bool = False) -> None:
        """Raise RequestError for a message, or for the size of a batch, that is not allowed."""
        policy = self.policy
        if policy.max_message_bytes and body_bytes > policy.max_message_bytes:
            text = f"a message has at most {policy.max_message_bytes} bytes (maxMessageBytes), this one {body_bytes}"
            raise refusal(policy, text, ResponseCode.MESSAGE_ILLEGAL)
        if policy.message_types and not is_batch:
            self._check_type(names.parse(properties).get)

    def check_types(self, properties: str | None, content: bytes, members: Iterable[tuple[int, int]]) -> None:
        """Raise RequestError if a message of a batch has a type that is not allowed.

        `members` states where in `content` the properties of each begin and end.  Those of the batch follow them.
        """
        if not self.policy.message_types:
            return
        parsed = names.parse(properties)
        common = {name: parsed[name] for name in DECIDING if name in parsed}
        present = {name: key for name, key in _DECIDING.items() if key in content}
        # Distinct ones are few, so that a batch of thousands needs few decisions.
        decided = {_decided(content[start:end], present) for start, end in members} if present else {frozenset[str]()}
        for own in decided:
            self._check_type((dict.fromkeys(own, "true") | common).get)

    def _check_type(self, value_of: Callable[[str], str | None]) -> None:
        policy, kind = self.policy, type_of(value_of)
        if kind not in policy.message_types:
            text = f"messages are of type {' or '.join(policy.message_types)} (messageTypes), this one {kind}"
            raise refusal(policy, text, ResponseCode.MESSAGE_ILLEGAL)


class Namespaces:
    """Limits of the namespaces of a table.  Lives in the event loop's thread."""

    def __init__(self, table: NamespaceTable | None = None) -> None:
        """Without a `table` there are no limits."""
        self.by_name: Mapping[str, NamespacePolicy] = {} if table is None else table.by_name

    def policy(self, name: str) -> NamespacePolicy | None:
        """Return what is set for the namespace of a topic or group; None for nothing."""
        return self.by_name.get(namespace_of(name)) if self.by_name else None

    def send_limits(self, topic: str) -> SendLimits | None:
        """Return the limits of sends to a topic; None without any."""
        policy = None if brought_along(topic) else self.policy(topic)
        return SendLimits(policy) if policy and (policy.max_message_bytes or policy.message_types) else None

    def full_of_groups(self, group: str, known: Collection[str]) -> str | None:
        """Return why a group may not be created beside those that are known; None if it may."""
        policy = self.policy(group)
        if policy is None or not policy.max_groups or count_in(policy.name, known) < policy.max_groups:
            return None
        return f"namespace {policy.name}: it has its {policy.max_groups} consumer groups (maxGroups); delete one first"

    def check_groups(self, wanted: Iterable[str], known: Collection[str]) -> None:
        """Raise RequestError unless the new ones of the `wanted` groups may be created together."""
        new: dict[str, set[str]] = {}
        for group in wanted:
            policy = self.policy(group)
            if policy is not None and policy.max_groups and group not in known:
                new.setdefault(policy.name, set()).add(group)
        for name, groups in new.items():
            policy = self.by_name[name]
            if (has := count_in(name, known)) + len(groups) > policy.max_groups:
                raise refusal(policy, f"it has {has} of at most {policy.max_groups} consumer groups (maxGroups)")


NO_NAMESPACES: Final = Namespaces()
