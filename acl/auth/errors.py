"""How a request is refused by ACL 2.0.  Source: RocketMQ 5.3.3, `AuthenticationException`, `AuthorizationException`."""

from sprocket.common.errors import RequestError
from sprocket.remoting.codes import ResponseCode


class AuthRefused(RequestError):
    """Refused by users or policies; the text says by what rule, never a key."""

    def __init__(self, why: str) -> None:
        super().__init__(ResponseCode.NO_PERMISSION, why)
