"""Types of gRPC clients; pure.

Source: RocketMQ 5.5.0, `ClientActivity`; 5.5.1 knows simple consumers of lite topics too.
"""

from typing import Final

from sprocket.grpc_wire import messaging_pb2 as wire

LITE_TYPES: Final = frozenset({wire.LITE_PUSH_CONSUMER, wire.LITE_SIMPLE_CONSUMER})
ACTIVE_TYPES: Final = frozenset({wire.SIMPLE_CONSUMER, wire.LITE_SIMPLE_CONSUMER})
CONSUMER_TYPES: Final = ACTIVE_TYPES | LITE_TYPES | {wire.PUSH_CONSUMER, wire.PULL_CONSUMER}
KNOWN_TYPES: Final = CONSUMER_TYPES | {wire.CLIENT_TYPE_UNSPECIFIED, wire.PRODUCER}


def is_lite(reported: wire.Settings | None) -> bool:
    """Return whether settings are those of a consumer of lite topics."""
    return reported is not None and reported.client_type in LITE_TYPES
