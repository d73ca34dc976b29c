"""Heartbeat, Telemetry and NotifyClientTermination: clients come, report their settings, and go.

Source: RocketMQ 5.5.0, `ClientActivity`, `GrpcClientSettingsManager`.
"""

import logging
from collections.abc import Callable

from google.protobuf.json_format import MessageToDict, SerializeToJsonError

from proxy.brokers.metadata import Metadata
from proxy.clients.commands import ClientCommands
from proxy.clients.grpc_members import consumer_data, grpc_key, grpc_member
from proxy.clients.members import Consumers
from proxy.clients.registry import Client, Clients
from proxy.clients.telemetry_stream import TelemetryStream
from proxy.config import ProxyConfig
from proxy.convert.client_types import CONSUMER_TYPES, KNOWN_TYPES
from proxy.convert.lite_groups import check_lite_mode
from proxy.convert.settings import merged
from proxy.server.call import Call
from proxy.status import OK, Refusal, status
from proxy.validation import group_of, topic_of
from sprocket.common.errors import ProtocolError
from sprocket.common.logs.peer_lines import peer_lines
from sprocket.grpc_wire import messaging_pb2 as wire
from sprocket.remoting.bodies.client import ConsumerData, HeartbeatData
from sprocket.remoting.bodies.heartbeat import read_heartbeat
from sprocket.remoting.codec.fastjson import dumps

logger = logging.getLogger(__name__)

_ANSWERS = frozenset({"thread_stack_trace", "verify_message_result"})
# Settings are kept for each client, and told to other workers and proxies.
_MAX_SETTINGS_BYTES = 256 * 1024


class ClientActivity:
    """Life of clients.  `settings_changed` is called when brokers may have to be told of a client."""

    def __init__(
        self,
        clients: Clients,
        consumers: Consumers,
        commands: ClientCommands,
        metadata: Metadata,
        config: ProxyConfig,
        settings_changed: Callable[[], None],
    ) -> None:
        self._clients = clients
        self._consumers = consumers
        self._commands = commands
        self._metadata = metadata
        self._config = config
        self._settings_changed = settings_changed

    async def heartbeat(self, call: Call, request: wire.HeartbeatRequest) -> wire.HeartbeatResponse:
        """Record that a client lives."""
        client = self._clients.get(call.client_id)
        reported = None if client is None else client.reported
        if reported is None:
            raise Refusal(wire.UNRECOGNIZED_CLIENT_TYPE, "cannot find client settings for this client")
        if reported.client_type in CONSUMER_TYPES:
            group_of(request.group)
        elif reported.client_type != wire.PRODUCER:
            raise Refusal(wire.UNRECOGNIZED_CLIENT_TYPE, wire.ClientType.Name(reported.client_type))
        self._heard(call, self._clients.seen(call.client_id, call.account))
        return wire.HeartbeatResponse(status=OK)

    async def notify_client_termination(
        self, call: Call, request: wire.NotifyClientTerminationRequest
    ) -> wire.NotifyClientTerminationResponse:
        """Forget a client that ends; what it holds is released."""
        client = self._clients.get(call.client_id)
        if client is None or client.reported is None:
            raise Refusal(wire.UNRECOGNIZED_CLIENT_TYPE, "cannot find client settings for this client")
        if client.reported.client_type in CONSUMER_TYPES:
            group_of(request.group)
        elif client.reported.client_type != wire.PRODUCER:
            raise Refusal(wire.UNRECOGNIZED_CLIENT_TYPE, wire.ClientType.Name(client.reported.client_type))
        self._clients.end(call.client_id)
        return wire.NotifyClientTerminationResponse(status=OK)

    async def telemetry(self, call: Call, command: wire.TelemetryCommand, stream: TelemetryStream) -> None:
        """Take one command of a client.  Raises Refusal for settings that are none."""
        kind = command.WhichOneof("command")
        if kind == "settings":
            await self._take_settings(call, command.settings, stream)
        elif kind in _ANSWERS and not self._commands.answered(call.client_id, command):
            peer_lines.info(
                logger, call.client_id, "event=telemetry_answer_unasked client=%r kind=%s", call.client_id, kind
            )

    async def _take_settings(self, call: Call, reported: wire.Settings, stream: TelemetryStream) -> None:
        kind = reported.WhichOneof("pub_sub")
        group = None
        if reported.client_type not in KNOWN_TYPES:
            raise Refusal(wire.UNSUPPORTED, f"clients of type {_type_name(reported.client_type)} are not supported")
        size = reported.ByteSize()
        if size > _MAX_SETTINGS_BYTES:
            raise Refusal(wire.PAYLOAD_TOO_LARGE, f"the settings have {size} bytes, at most {_MAX_SETTINGS_BYTES}")
        try:
            MessageToDict(reported)
        except SerializeToJsonError as error:  # a time out of range, which cannot be told to other proxies
            raise Refusal(wire.BAD_REQUEST, f"the settings are not valid: {error}") from None
        if kind == "publishing":
            for topic in reported.publishing.topics:
                topic_of(topic)
        elif kind == "subscription" and reported.client_type in CONSUMER_TYPES:
            group_name = group_of(reported.subscription.group)
            _check_heartbeat(call.client_id, consumer_data(reported))
            group = await self._metadata.group(group_name)
            check_lite_mode(reported, group)
        elif kind == "subscription":
            raise Refusal(wire.UNSUPPORTED, f"Client type is not consumer, type: {_type_name(reported.client_type)}")
        else:
            raise Refusal(wire.BAD_REQUEST, "there is no publishing or subscription data in settings")
        client = self._clients.report(call.client_id, reported, stream, call.account)
        self._heard(call, client)
        stream.send(wire.TelemetryCommand(status=status(wire.OK), settings=merged(reported, group, self._config)))
        if kind == "publishing" or self._config.register_consumers_at_brokers:
            self._settings_changed()

    def _heard(self, call: Call, client: Client) -> None:
        """Record a consumer as a member of its group."""
        reported = client.reported
        if reported is None or reported.client_type not in CONSUMER_TYPES:
            return
        if reported.WhichOneof("pub_sub") != "subscription":
            return
        data = client.consumer_data
        if data is None:
            client.joined(data := self._consumers.shared(consumer_data(reported)))
        group = self._consumers.group(data.group_name)
        member = None if group is None else group.members.get(grpc_key(call.client_id))
        if member is None or member.proxy is not None or member.address != call.peer_text:
            member = grpc_member(call, client.seen_at)
        member.heard_at = client.seen_at
        self._consumers.heard(member, data)


def _check_heartbeat(client_id: str, data: ConsumerData) -> None:
    """Refuse what a broker would refuse, or another proxy ignore.  Raises Refusal."""
    try:
        read_heartbeat(dumps(HeartbeatData(client_id, consumer_data_set=[data])))
    except ProtocolError as error:
        raise Refusal(wire.BAD_REQUEST, f"no broker would take these settings: {error.detail}") from None


def _type_name(client_type: int) -> str:
    return wire.ClientType.Name(client_type) if client_type in wire.ClientType.values() else str(client_type)
