"""Headers of requests between brokers that RocketMQ does not have."""

from sprocket.remoting.headers.base import Header, Int, Long


class NegotiateHaSessionRequestHeader(Header, kw_only=True):
    """NEGOTIATE_HA_SESSION: a slave tells its master the highest version of sessions that it speaks."""

    cluster_name: str
    broker_name: str
    broker_id: Long
    version: Int


class NegotiateHaSessionResponseHeader(Header, kw_only=True):
    """The version that both speak, the epoch of the master, and whether its port for slaves takes TLS."""

    version: Int
    epoch: Long
    takes_tls: bool = False


class ProveBrokerIdentityRequestHeader(Header, kw_only=True):
    """PROVE_BROKER_IDENTITY: the address that the caller dialed, a nonce, and the caller's proof, hexadecimal."""

    address: str
    nonce: str
    proof: str


class ProveBrokerIdentityResponseHeader(Header, kw_only=True):
    """The proof of the broker that was asked, hexadecimal."""

    proof: str
