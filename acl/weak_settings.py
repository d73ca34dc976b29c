"""Weak settings of a server: what they leave open to anyone who reaches its port.  Logged once at the start."""

import ipaddress
import logging
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from acl.auth.settings import AuthSettings
from sprocket.common.everywhere import EVERYWHERE
from sprocket.remoting.tls.settings import DISABLED, ENFORCING, REQUIRE, TlsSettings

logger = logging.getLogger(__name__)

# Passwords in RocketMQ's documents and sample files, and what people write at first.
_SAMPLES: Final = frozenset(
    {"12345678", "rocketmq", "rocketmq2", "secretkey", "accesskey", "admin", "password", "123456", "changeme", "root"}
)
_SHORTEST: Final = 12


@dataclass(frozen=True)
class Exposure:
    """Settings to check.

    `secrets` are the names and secret keys of accounts.  `has_replica_secret` tells whether slaves must prove their
    identity at the port for them; None for a server without that port.  `signs_for_strangers` tells whether requests
    to other brokers are signed before those have proved their identity.
    """

    bind_address: str
    auth: AuthSettings
    tls: TlsSettings
    acl_enable: bool = False
    has_replica_secret: bool | None = None
    signs_for_strangers: bool = False
    secrets: Iterable[tuple[str, str]] = ()


def weak_settings(of: Exposure) -> Iterator[tuple[str, str]]:
    """Yield (key, what it leaves open) for each weak setting."""
    auth = of.auth
    if not _is_local(of.bind_address):
        yield from _reachable(of)
    if auth.asks_for_users and auth.auth_secrets_in_clear:
        yield "authSecretsInClear", "anyone who reads auth.json has the passwords of all users"
    if of.signs_for_strangers:
        yield (
            "haAllowPlainPeers",
            "requests are signed for any address that a name server calls a broker of this cluster; such a signature"
            " never expires and has an admin's rights: let nobody else reach the name servers, and replace the key once"
            " no broker of RocketMQ is left",
        )
    for name, secret in of.secrets:
        if _is_guessed(name, secret):
            yield "secretKey", f"that of account {name} is a sample, its own name, or short"


def warn_of(exposure: Exposure) -> None:
    """Log a line for each weak setting."""
    for key, what in weak_settings(exposure):
        logger.warning("event=weak_setting key=%s note=%r", key, what)


def _reachable(of: Exposure) -> Iterator[tuple[str, str]]:
    auth, tls = of.auth, of.tls
    if of.bind_address in EVERYWHERE:
        yield "bindAddress", "the port is open at all addresses of this machine"
    if not auth.asks_for_users and not of.acl_enable:
        yield "authenticationEnabled", "anyone who reaches the port may do everything"
    elif not auth.authorization_enabled and not of.acl_enable:
        yield "authorizationEnabled", "every user may do everything"
    if tls.server_mode == DISABLED:
        yield "tls.server.mode", "what is sent can be read and changed on its way"
    elif tls.server_mode != ENFORCING:
        yield "tls.server.mode", "plain connections are accepted as well: what they send can be read and changed"
    if of.has_replica_secret is False:
        who = "reaches the port for slaves"
        if tls.server_mode == ENFORCING and tls.server_need_client_auth == REQUIRE:
            who = "has a certificate, a client's will do, and " + who
        yield "haSecretFile", f"anyone who {who} gets the whole log"


def _is_local(address: str) -> bool:
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return address == "localhost"


def _is_guessed(name: str, secret: str) -> bool:
    return len(secret) < _SHORTEST or secret.lower() in _SAMPLES or secret.lower() == name.lower()
