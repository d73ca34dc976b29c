"""Attributes of groups of lite topics that both brokers and proxies obey.

Source: RocketMQ 5.5.1, `SubscriptionGroupAttributes`, `ClientProcessor.validateLiteSubscriptionQuota`.
"""

from collections.abc import Mapping
from typing import Final

LITE_BIND_TOPIC: Final = "lite.bind.topic"
LITE_CLIENT_QUOTA: Final = "lite.sub.client.quota"
DEFAULT_CLIENT_QUOTA: Final = 2000
# Lite topics that a client may have beyond its quota.
CLIENT_QUOTA_BUFFER: Final = 300


def lite_bind_topic(attributes: Mapping[str, str]) -> str | None:
    """Return the topic whose lite topics a group consumes; None if it consumes none."""
    return attributes.get(LITE_BIND_TOPIC) or None
