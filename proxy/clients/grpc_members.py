"""gRPC consumers as members of their groups; pure.

Source: RocketMQ 5.5.0, `ClientActivity.registerConsumer`, `buildConsumeType`, `buildMessageModel`,
`buildSubscriptionDataSet`.
"""

from typing import Final

from proxy.clients.members import Member
from proxy.convert.client_types import ACTIVE_TYPES, is_lite
from proxy.convert.filters import subscription_of
from proxy.convert.resources import full_name
from proxy.server.call import Call
from sprocket.grpc_wire import messaging_pb2 as wire
from sprocket.grpc_wire.metadata import LANGUAGE
from sprocket.remoting.bodies.client import ConsumerData
from sprocket.remoting.codes import LanguageCode
from sprocket.remoting.command import VERSION

_KEY_PREFIX: Final = "grpc-"


def grpc_key(client_id: str) -> str:
    """Return the key of a gRPC client among the members of groups."""
    return _KEY_PREFIX + client_id


def grpc_client_id(key: str) -> str:
    """Return the client id in a key of `grpc_key`."""
    return key.removeprefix(_KEY_PREFIX)


def grpc_member(call: Call, heard_at: float) -> Member:
    """Return the consumer that calls.  Its version is no number of RocketMQ: it gets the present one."""
    language = call.metadata.get(LANGUAGE, "")
    return Member(
        key=grpc_key(call.client_id),
        client_id=call.client_id,
        language=language if language in LanguageCode.__members__ else LanguageCode.OTHER.name,
        version=VERSION,
        address=call.peer_text,
        local_address=f"{call.listener.name}:{call.listener.port}",
        heard_at=heard_at,
    )


def consumer_data(reported: wire.Settings) -> ConsumerData:
    """Return what a consumer's settings say of its group.  Raises Refusal for a filter that is none."""
    entries = reported.subscription.subscriptions
    return ConsumerData(
        full_name(reported.subscription.group),
        "CONSUME_ACTIVELY" if reported.client_type in ACTIVE_TYPES else "CONSUME_PASSIVELY",
        "LITE_SELECTIVE" if is_lite(reported) else "CLUSTERING",
        "CONSUME_FROM_LAST_OFFSET",
        [subscription_of(full_name(entry.topic), entry.expression) for entry in entries],
    )
