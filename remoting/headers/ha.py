"""Headers of requests between the replicas of a group that RocketMQ does not have."""

from remoting.headers.base import Header, Int, Long


class NegotiateHaSessionRequestHeader(Header, kw_only=True):
    """NEGOTIATE_HA_SESSION: a slave asks its master whether it speaks sessions, and of which version."""

    cluster_name: str
    broker_name: str
    broker_id: Long
    version: Int


class NegotiateHaSessionResponseHeader(Header, kw_only=True):
    """The version that both speak, the epoch of the master, and whether its port for slaves takes TLS."""

    version: Int
    epoch: Long
    takes_tls: bool = False
