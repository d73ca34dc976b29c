"""Refusal of ACL 2.0.  Source: RocketMQ 5.3.3, `AuthenticationException`, `AuthorizationException`."""

from sprocket.common.errors import RequestError
from sprocket.common.refusal_reasons import Reason
from sprocket.remoting.codes import ResponseCode


class AuthRefused(RequestError):
    """Refusal by users or policies; the text names the rule, never a key."""

    refusal_reason = Reason.ACCESS_DENIED

    def __init__(self, why: str) -> None:
        super().__init__(ResponseCode.NO_PERMISSION, why)
