"""Options of reads over the wire.

Modules for the wire are imported where they are used, because each Python process of Spark imports this file.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from spark.options.option_values import CONNECTION_OPTIONS, credentials, name_servers, one_of, tls, whole_number
from sprocket.common.errors import ConfigError

if TYPE_CHECKING:
    from spark.wire.cluster import WireSettings
    from spark.wire.pull import Subscription

WIRE_OPTIONS: Final = (
    "consumerGroup",  # group of the reader; it commits no offsets
    *CONNECTION_OPTIONS,
    "mqClientApiTimeout",  # ms; time limit of one request
    "numRetries",  # retries of a request without a response
    "subExpression",  # tags (A || B) or SQL92 that brokers filter by
    "expressionType",  # TAG or SQL92
)
_KINDS: Final = ("TAG", "SQL92")


def read_wire_settings(given: Mapping[str, str]) -> "WireSettings | None":
    """Return the options of `WIRE_OPTIONS` in `given`, None without namesrvAddr.  Raises ConfigError."""
    if "namesrvAddr" not in given:
        astray = [name for name in WIRE_OPTIONS if name in given]
        if astray:
            raise ConfigError(f"option {astray[0]!r} is for reads over the wire: add 'namesrvAddr', or leave it out")
        return None
    if "path" in given or "paths" in given:
        raise ConfigError("options 'path' and 'namesrvAddr' exclude each other: read files, or over the wire")
    from spark.wire.cluster import WireSettings

    return WireSettings(
        name_servers=name_servers(given),
        timeout_ms=whole_number(given, "mqClientApiTimeout", WireSettings.timeout_ms, 1),
        retries=whole_number(given, "numRetries", WireSettings.retries, 0),
        group=given.get("consumerGroup", WireSettings.group),
        credentials=credentials(given),
        tls=tls(given),
    )


def read_subscription(given: Mapping[str, str]) -> "Subscription":
    """Return the filter for brokers.

    Raises ConfigError for an unknown expressionType and for an expression without a tag.
    """
    kind = one_of(given, "expressionType", _KINDS)
    if kind != "TAG" and "subExpression" not in given:
        raise ConfigError("option 'subExpression' is missing: an expressionType needs one")
    from spark.wire.pull import Subscription

    # A broker treats "*" with blanks around it as a tag of that name.
    subscription = Subscription(given.get("subExpression", "*").strip(), kind)
    if subscription.tags == frozenset():
        raise ConfigError(f"option 'subExpression': {given['subExpression']!r} names no tag; * stands for all messages")
    return subscription
