"""Table of namespaces' policies, stored in ``config/namespaces.json``.  Not in RocketMQ."""

from typing import Final

from broker.config.operator_table import OperatorTable
from broker.plan.version import PlanVersion
from sprocket.common import limits
from sprocket.common.clock import Clock
from sprocket.common.errors import RequestError
from sprocket.common.files.config_file import ConfigFile
from sprocket.common.refusal_reasons import Reason
from sprocket.remoting.bodies.namespace import NamespacePolicy, NamespaceTableBody
from sprocket.remoting.bodies.topic import MESSAGE_TYPE
from sprocket.remoting.codes import ResponseCode
from sprocket.remoting.message.message_type import MessageType
from sprocket.remoting.message.namespaces import namespace_problem

_MAX_VALUE: Final = 1 << 53
_NUMBERS: Final = {
    "max_topics": _MAX_VALUE, "max_queues": limits.MAX_TOPIC_QUEUES, "max_groups": _MAX_VALUE,
    "max_connections": _MAX_VALUE, "max_message_bytes": _MAX_VALUE, "retention_hours": 1 << 31,
    "retention_bytes": _MAX_VALUE, "topic_queues": limits.MAX_TOPIC_QUEUES,
}  # fmt: skip


class NamespaceTable(OperatorTable[NamespacePolicy, NamespaceTableBody]):
    """Table of policies by the namespace, ``shop|orders``."""

    def __init__(self, file: ConfigFile, clock: Clock, plan_version: PlanVersion) -> None:
        super().__init__(file, clock, plan_version, "namespace", NamespaceTableBody)

    def set(self, policy: NamespacePolicy) -> None:
        """Add or replace a policy.  Wait for `save`; if that fails, the table is as before.  Raises RequestError.

        What the namespace has already stays, even above a limit.
        """
        check(policy)
        self._put(policy.name, policy)


def check(policy: NamespacePolicy) -> None:
    """Raise RequestError unless the policy is valid, apart from the attributes of its template."""
    problem = namespace_problem(policy.name)
    if problem is not None:
        raise _invalid(policy, problem)
    for name, largest in _NUMBERS.items():
        if not 0 <= getattr(policy, name) <= largest:
            raise _invalid(policy, f"{name} is from 0 (no limit) to {largest}")
    for kind in policy.message_types:
        if kind not in MessageType.__members__:
            raise _invalid(policy, f"{kind[:64]!r} is no message type; allowed are {', '.join(MessageType)}")
    kind = policy.topic_attributes.get(MESSAGE_TYPE, MessageType.NORMAL)
    if policy.message_types and kind not in policy.message_types:
        raise _invalid(policy, f"new topics would have the type {kind}, which it does not allow: set topic_attributes "
                               f"{MESSAGE_TYPE} to one of {', '.join(policy.message_types)}")  # fmt: skip
    if policy.max_queues and policy.topic_queues > policy.max_queues:
        raise _invalid(policy, "topic_queues is above max_queues")


def _invalid(policy: NamespacePolicy, text: str) -> RequestError:
    remark = f"namespace {policy.name[:64]!r}: {text}"
    return RequestError(ResponseCode.INVALID_PARAMETER, remark, Reason.INVALID_PARAMETER)
