"""Options of reads over the wire.

What only these reads need is imported for them: each Python process of Spark imports this file.
"""

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from spark.option_values import credentials, tls, whole_number
from sprocket.common.errors import ConfigError

if TYPE_CHECKING:
    from spark.wire.cluster import WireSettings
    from spark.wire.pull import Subscription

WIRE_OPTIONS: Final = (
    "namesrvAddr",  # host:port of name servers, several separated by ;
    "consumerGroup",  # what brokers know the reader by; it commits no offsets
    "accessKey",
    "secretKey",
    "useTLS",  # true: connections are TLS
    "tlsTrustCertPath",  # PEM of the authorities that servers are checked with; default: the system's
    "tlsClientCertPath",  # PEM of the reader's own certificate, for servers that ask for one
    "tlsClientKeyPath",
    "mqClientApiTimeout",  # ms of one request
    "numRetries",  # of requests that nobody answers
    "subExpression",  # tags (A || B) or SQL92 that brokers filter by
    "expressionType",  # TAG or SQL92
)
_KINDS: Final = ("TAG", "SQL92")


def read_wire_settings(given: Mapping[str, str]) -> "WireSettings | None":
    """The options of `WIRE_OPTIONS` in `given`; None without namesrvAddr.  Raises ConfigError."""
    if "namesrvAddr" not in given:
        astray = [name for name in WIRE_OPTIONS if name in given]
        if astray:
            raise ConfigError(
                f"option {astray[0]!r} is for reads over the wire: give 'namesrvAddr' too, or leave it out"
            )
        return None
    if "path" in given or "paths" in given:
        raise ConfigError("options 'path' and 'namesrvAddr' exclude each other: read files, or over the wire")
    from spark.wire.cluster import WireSettings

    return WireSettings(
        name_servers=_addresses(given["namesrvAddr"]),
        timeout_ms=whole_number(given, "mqClientApiTimeout", WireSettings.timeout_ms, 1),
        retries=whole_number(given, "numRetries", WireSettings.retries, 0),
        group=given.get("consumerGroup", WireSettings.group),
        credentials=credentials(given),
        tls=tls(given),
    )


def read_subscription(given: Mapping[str, str]) -> "Subscription":
    """Raises ConfigError for an expressionType that RocketMQ does not have."""
    kind = given.get("expressionType", "TAG").upper()
    if kind not in _KINDS:
        raise ConfigError(f"option 'expressionType': {given['expressionType']!r} is not one of {', '.join(_KINDS)}")
    if kind != "TAG" and "subExpression" not in given:
        raise ConfigError("option 'subExpression' is missing: an expressionType needs one")
    from spark.wire.pull import Subscription

    return Subscription(given.get("subExpression", "*"), kind)


def _addresses(text: str) -> tuple[str, ...]:
    from remoting.client import split_address

    addresses = tuple(part.strip() for part in re.split("[;,]", text) if part.strip())
    try:
        for address in addresses:
            split_address(address)
    except ValueError as error:
        raise ConfigError(f"option 'namesrvAddr': {error}") from error
    if not addresses:
        raise ConfigError("option 'namesrvAddr' is empty: host:port of a name server, several separated by ;")
    return addresses
