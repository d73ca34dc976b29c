"""Errors of the client: each names the cause and what to do about it.

`ConnectFailed`, `ConnectionLost` and `RemotingTimeout` of the layer below are part of this tree.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final

from sprocket.common.errors import ClientError, ConfigError
from sprocket.remoting.client import ConnectFailed
from sprocket.remoting.codes import RETRY_AFTER_FIELD, ResponseCode
from sprocket.remoting.pending import ConnectionLost, RemotingTimeout

__all__ = [
    "AnswerUnreadable",
    "BodyUnreadable",
    "BrokerNotFound",
    "BrokerRefused",
    "ClientClosed",
    "ClientError",
    "ConnectFailed",
    "ConnectionLost",
    "IllegalArgument",
    "IllegalMessage",
    "LiteQuotaExceeded",
    "NameServerUnreachable",
    "PermissionDenied",
    "RemotingTimeout",
    "ReplyTimeout",
    "SendFailed",
    "SessionLost",
    "TlsUnusable",
    "TopicNotFound",
    "TopicNotWritable",
]


class ClientClosed(ClientError):
    """The producer or consumer is closed, or was never opened with ``async with``."""


class IllegalArgument(ClientError, ValueError, TypeError):
    """An argument of the wrong type, out of range, or in conflict with another; raised before anything is done.

    It is a ValueError and a TypeError too, as Python's own functions raise them.
    """


class IllegalMessage(IllegalArgument):
    """A message, topic or group that no broker would take; nothing was sent."""


class NameServerUnreachable(ClientError):
    """None of the name servers `addresses` answered."""

    def __init__(self, text: str, addresses: str = "") -> None:
        super().__init__(text)
        self.addresses = addresses


class TopicNotFound(ClientError):
    """No name server knows a route for the topic."""

    def __init__(self, topic: str, name_servers: str, *, has_brokers: bool = True) -> None:
        if has_brokers:
            advice = (
                f"create it with `sprocket topic create {topic}` or enable autoCreateTopicEnable on a broker; "
                "if it exists, the brokers that hold it are down or not registered"
            )
        else:
            advice = "no broker is registered there at all; start one, or check its namesrvAddr"
        super().__init__(f"topic {topic} has no route on {name_servers}; {advice}")
        self.topic = topic


class TopicNotWritable(ClientError):
    """The topic exists, but no queue of it can be sent to now; `reasons` has one for each of its brokers."""

    def __init__(self, topic: str, reasons: Sequence[str]) -> None:
        why = "; ".join(reasons) or "no broker has a queue of it"
        super().__init__(
            f"topic {topic} exists, but no queue of it can be sent to: {why}. Start the broker, or permit writing "
            f"(`mqadmin updateTopicPerm -t {topic} -p 6`, brokerPermission)"
        )
        self.topic = topic
        self.reasons = tuple(reasons)


class BrokerNotFound(ClientError):
    """A broker that a queue names is in no route: it is down or was never registered."""

    def __init__(self, broker_name: str) -> None:
        super().__init__(f"broker {broker_name} has no address in the routes; check that it runs and is registered")
        self.broker_name = broker_name


class BrokerRefused(ClientError):
    """A broker answered with an error: `code` and `remark` are its own."""

    def __init__(self, code: int, remark: str | None, address: str) -> None:
        super().__init__(f"{address} answered {code_name(code)} ({code}): {remark or 'no remark'}")
        self.code = code
        self.remark = remark
        self.address = address


class PermissionDenied(BrokerRefused):
    """Access control of a broker or a name server refused the request; it is not repeated."""

    def __init__(self, code: int, remark: str | None, address: str) -> None:
        super().__init__(code, remark, address)
        self.args = (
            f"{self.args[0]}. Sign with credentials that may do this (ClientSettings.credentials), "
            "or have an operator grant it (`mqadmin createAcl`, `updateAcl`)",
        )


class FlowControlled(BrokerRefused):
    """A quota of the broker is used up; it admits the next message after `retry_after_s`."""

    def __init__(self, code: int, remark: str | None, address: str, retry_after_s: float) -> None:
        super().__init__(code, remark, address)
        self.retry_after_s = retry_after_s


class LiteQuotaExceeded(BrokerRefused):
    """A client has too many lite topics, or a broker has; nothing was subscribed or stored."""

    def __init__(self, code: int, remark: str | None, address: str) -> None:
        super().__init__(code, remark, address)
        self.args = (
            f"{self.args[0]}. Unsubscribe lite topics (close sessions), let idle ones be deleted "
            "(lite.topic.expiration of their topic), or have an operator raise the limit (lite.sub.client.quota of the "
            "group, maxLiteSubscriptionCount, maxLmqConsumeQueueNum)",
        )


class SessionLost(ClientError):
    """Another client reads the session now: the group of the session is exclusive.  Iterate again to take it back."""

    def __init__(self, session: str, group: str) -> None:
        super().__init__(
            f"another client of group {group} has opened session {session}, and the group lets one client read it; "
            "iterate again to take it back, or leave it to the other one"
        )
        self.session = session


# How ACL 1.0 of RocketMQ and of Sprocket begins a refusal, whose code is SYSTEM_ERROR.
_PLAIN_REFUSAL: Final = "org.apache.rocketmq.acl.common.AclException"
# With these words NO_PERMISSION is not about the caller, but about the permission bits of a topic, group or broker, or
# about the user or policy to change.
_NOT_THE_CALLER: Final = ("forbidden", "subscription group no permission", "not allowed to", "is not exist")


# How a broker refuses a SqlFilter while enablePropertyFilter is false.
_NO_SQL: Final = "does not support consumer to filter message by SQL92"


def is_access_refusal(code: int | None, remark: str | None) -> bool:
    """Return whether access control refused a request, judged by the response's code and remark."""
    text = remark or ""
    if code == ResponseCode.NO_PERMISSION:
        return not any(words in text for words in _NOT_THE_CALLER)
    return code == ResponseCode.SYSTEM_ERROR and _PLAIN_REFUSAL in text


_MAX_DIGITS: Final = 12
_QUOTAS: Final = frozenset({ResponseCode.LMQ_QUOTA_EXCEEDED, ResponseCode.LITE_SUBSCRIPTION_QUOTA_EXCEEDED})


def refusal(code: int, remark: str | None, address: str, fields: Mapping[str, str] | None = None) -> BrokerRefused:
    """Return the error for a response that says no: PermissionDenied when access control says it.

    `fields` are those of the response, which may say when to try again.
    """
    retry_after = "" if fields is None else fields.get(RETRY_AFTER_FIELD, "")
    if code == ResponseCode.FLOW_CONTROL and retry_after.isdecimal() and len(retry_after) <= _MAX_DIGITS:
        return FlowControlled(code, remark, address, int(retry_after) / 1000)
    if code in _QUOTAS:
        return LiteQuotaExceeded(code, remark, address)
    kind = PermissionDenied if is_access_refusal(code, remark) else BrokerRefused
    if remark is not None and _NO_SQL in remark:
        remark = f"{remark}; set enablePropertyFilter = true on the broker"
    return kind(code, remark, address)


class TlsUnusable(ClientError, ConfigError):
    """Certificates or keys of the client's TLS that cannot be used; nothing was connected."""


class SendFailed(ClientError):
    """No attempt to send a message succeeded; the last error is the cause.  `brokers`: the broker of each attempt."""

    def __init__(self, topic: str, brokers: list[str], elapsed_ms: int, last: ClientError | None) -> None:
        counts = Counter(brokers)
        on = ", ".join(f"{broker} ({_attempts(count)})" for broker, count in counts.items()) or "no broker"
        super().__init__(
            f"topic {topic}: not sent after {_attempts(len(brokers))} in {elapsed_ms} ms on {on}"
            f"; the last error was: {last}. {_advice(topic, last)}"
        )
        self.topic = topic
        self.brokers = brokers


def _attempts(count: int) -> str:
    return f"{count} attempt" if count == 1 else f"{count} attempts"


def _advice(topic: str, last: ClientError | None) -> str:
    """What to do about the last error of a send."""
    if isinstance(last, BrokerNotFound | ConnectFailed):
        return "Check that the brokers of the topic run and can be reached from here, then send again"
    if isinstance(last, RemotingTimeout | ConnectionLost):
        return "The message may have arrived; check the brokers, or allow more time (timeout_s), then send again"
    code = last.code if isinstance(last, BrokerRefused) else None
    if code == ResponseCode.NO_PERMISSION:
        return f"Permit writing (`mqadmin updateTopicPerm -t {topic} -p 6`, brokerPermission), then send again"
    if code == ResponseCode.TOPIC_NOT_EXIST:
        return f"Create the topic with `sprocket topic create {topic}`, then send again"
    if code == ResponseCode.SYSTEM_BUSY:
        return "The brokers are overloaded: send less at a time, or later"
    return "See the brokers' logs for the cause, then send again"


class ReplyTimeout(ClientError):
    """A request was sent and no reply arrived in time: no consumer reads the topic, or it is too slow."""

    def __init__(self, topic: str, timeout_s: float) -> None:
        super().__init__(
            f"topic {topic}: the request was sent, but no reply came within {timeout_s:g} s; "
            "check that a consumer of the topic runs and replies"
        )
        self.topic = topic


class AnswerUnreadable(ClientError):
    """A server's answer is not what the protocol says: perhaps another service listens at its address."""


class BodyUnreadable(ClientError):
    """A compressed body that cannot be inflated within the limit."""


def code_name(code: int) -> str:
    """Name of a response code, ``UNKNOWN`` for one that the protocol does not have."""
    try:
        return ResponseCode(code).name
    except ValueError:
        return "UNKNOWN"
