"""Headers of requests about quotas.  Not in RocketMQ."""

from sprocket.remoting.headers.base import Header


class ChargeCallerRequestHeader(Header, kw_only=True):
    """CHARGE_CALLER: a proxy tells for which client all requests of this connection are from now on.

    Without `address` it only asks, see the response.  Without `account` the client has not signed.
    """

    account: str | None = None
    address: str | None = None  # without port


class ChargeCallerResponseHeader(Header, kw_only=True):
    """Whether accounts or addresses have quotas at this broker, and it would charge those whom the caller names."""

    charges_callers: bool
