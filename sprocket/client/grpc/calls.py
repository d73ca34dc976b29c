"""Calls to proxies: channels, metadata, signature, and failures as errors of the client.

Source: RocketMQ 5.3.3, `GrpcConstants`, `DefaultAuthenticationContextBuilder` (MQv2-HMAC-SHA1).
"""

import hashlib
import hmac
import time
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any, Final

import grpc

from sprocket.client.errors import (
    BrokerRefused,
    ClientError,
    ConnectFailed,
    ConnectionLost,
    LiteQuotaExceeded,
    PermissionDenied,
    RemotingTimeout,
    TopicNotFound,
)
from sprocket.client.grpc.channel_credentials import channel_credentials
from sprocket.grpc_wire import messaging_pb2 as wire
from sprocket.grpc_wire import metadata as names
from sprocket.remoting.codes import ResponseCode
from sprocket.remoting.credentials import Credentials, TokenCredentials
from sprocket.remoting.renewed_token import RenewedToken
from sprocket.remoting.tls.settings import TlsSettings

_SERVICE: Final = wire.DESCRIPTOR.services_by_name["MessagingService"]
CLIENT_VERSION: Final = "5.0.8"
# A proxy that comes back is found soon; gRPC's default waits up to 120 s.
_OPTIONS: Final = (
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_send_message_length", -1),
    ("grpc.initial_reconnect_backoff_ms", 100),
    # In spite of its name, the time that one attempt to connect gets: TLS to a far or busy proxy takes a while.
    ("grpc.min_reconnect_backoff_ms", 3000),
    ("grpc.max_reconnect_backoff_ms", 1000),
    ("grpc.keepalive_time_ms", 30_000),
    ("grpc.use_local_subchannel_pool", 1),
)
_CODES: Final = {
    wire.TOO_MANY_REQUESTS: ResponseCode.SYSTEM_BUSY,
    wire.UNAUTHORIZED: ResponseCode.NO_PERMISSION,
    wire.FORBIDDEN: ResponseCode.NO_PERMISSION,
    wire.LITE_TOPIC_QUOTA_EXCEEDED: ResponseCode.LMQ_QUOTA_EXCEEDED,
    wire.LITE_SUBSCRIPTION_QUOTA_EXCEEDED: ResponseCode.LITE_SUBSCRIPTION_QUOTA_EXCEEDED,
    wire.TOPIC_NOT_FOUND: ResponseCode.TOPIC_NOT_EXIST,
    wire.CONSUMER_GROUP_NOT_FOUND: ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
    wire.NOT_IMPLEMENTED: ResponseCode.REQUEST_CODE_NOT_SUPPORTED,
    wire.UNSUPPORTED: ResponseCode.REQUEST_CODE_NOT_SUPPORTED,
    wire.MASTER_PERSISTENCE_TIMEOUT: ResponseCode.FLUSH_DISK_TIMEOUT,
    wire.SLAVE_PERSISTENCE_TIMEOUT: ResponseCode.FLUSH_SLAVE_TIMEOUT,
    wire.HA_NOT_AVAILABLE: ResponseCode.SLAVE_NOT_AVAILABLE,
}
_KINDS: Final = {
    wire.UNAUTHORIZED: PermissionDenied,
    wire.LITE_TOPIC_QUOTA_EXCEEDED: LiteQuotaExceeded,
    wire.LITE_SUBSCRIPTION_QUOTA_EXCEEDED: LiteQuotaExceeded,
}
# Failures of the proxy, which another attempt may not meet.
_SERVER_FAULTS: Final = range(wire.INTERNAL_ERROR, wire.UNSUPPORTED)


def refusal_of(status: wire.Status, address: str, topic: str = "") -> ClientError:
    """Return the error for a status that is not OK: the class that the remoting client raises for the same cause."""
    name = wire.Code.Name(status.code)
    if status.code == wire.TOPIC_NOT_FOUND and topic:
        return TopicNotFound(topic, f"the proxy {address}")
    if status.code == wire.PROXY_TIMEOUT:
        return RemotingTimeout(f"{address}: {name}: {status.message}")
    fault = ResponseCode.SYSTEM_ERROR if status.code in _SERVER_FAULTS else ResponseCode.MESSAGE_ILLEGAL
    code = int(_CODES.get(status.code, fault))
    kind = _KINDS.get(status.code, BrokerRefused)
    return kind(code, f"{name}: {status.message}", address)


def failure_of(error: grpc.RpcError, address: str, timeout_s: float) -> ClientError:
    """Return the error for a call that got no answer."""
    code, details = error.code(), error.details() or ""
    if code is grpc.StatusCode.DEADLINE_EXCEEDED:
        return RemotingTimeout(f"{address} did not answer within {timeout_s:g} s")
    if code is grpc.StatusCode.UNAVAILABLE and "onnect" in details and "reset" not in details:
        return ConnectFailed(f"{address} cannot be reached: {details}; check that the proxy runs there")
    return ConnectionLost(f"{address}: the call failed with {code.name}: {details}")


class Calls:
    """Calls of one client to the first of `endpoints` that answers, else to the next.

    `client_id` returns the client's id; `wall_s` the time of signatures, s since the epoch.
    """

    def __init__(
        self,
        endpoints: Sequence[str],
        client_id: Callable[[], str],
        credentials: Credentials | None,
        tls: TlsSettings | None,
        wall_s: Callable[[], float],
    ) -> None:
        self._endpoints = list(endpoints)
        self._client_id = client_id
        self._credentials = credentials
        self._tls = tls
        self._wall_s = wall_s
        self._turn = 0
        # Called when calls go to another endpoint from now on.
        self.on_move: list[Callable[[], None]] = []
        # One for each endpoint that was used.  An endpoint that failed keeps its own: its calls may still run there.
        self._channels: dict[str, grpc.aio.Channel] = {}

    @property
    def address(self) -> str:
        """The endpoint that calls go to."""
        return self._endpoints[self._turn % len(self._endpoints)]

    def next_endpoint(self) -> None:
        """Use the next endpoint from now on, if there are several."""
        before = self.address
        self._turn += 1
        if self.address != before:
            for listener in self.on_move:
                listener()

    def check_tls(self) -> None:
        """Raise TlsUnusable for settings or files that gRPC cannot use."""
        if self._tls is not None:
            channel_credentials(self._tls)

    async def close(self) -> None:
        """Close all channels; running calls fail."""
        channels, self._channels = self._channels, {}
        for channel in channels.values():
            await channel.close()

    def _open(self) -> grpc.aio.Channel:
        address = self.address
        channel = self._channels.get(address)
        if channel is None:
            if self._tls is None or not self._tls.is_client:
                channel = grpc.aio.insecure_channel(address, options=_OPTIONS)
            else:
                channel = grpc.aio.secure_channel(address, channel_credentials(self._tls), options=_OPTIONS)
            self._channels[address] = channel
        return channel

    def _metadata(self) -> list[tuple[str, str]]:
        listed = [
            (names.CLIENT_ID, self._client_id()), (names.LANGUAGE, "PYTHON"),
            (names.CLIENT_VERSION, CLIENT_VERSION), (names.PROTOCOL, "v2"),
        ]  # fmt: skip
        if isinstance(self._credentials, TokenCredentials):
            listed.append((names.AUTHORIZATION, f"Bearer {self._credentials.token}"))
        elif self._credentials is not None:
            date_time = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(self._wall_s()))
            secret = self._credentials.secret_key.encode()
            signature = hmac.new(secret, date_time.encode(), hashlib.sha1).hexdigest().upper()
            account = f"MQv2-HMAC-SHA1 Credential={self._credentials.access_key}"
            text = f"{account}, SignedHeaders={names.DATE_TIME}, Signature={signature}"
            listed += [(names.DATE_TIME, date_time), (names.AUTHORIZATION, text)]
            if self._credentials.security_token:
                listed.append((names.SESSION_TOKEN, self._credentials.security_token))
        return listed

    def _method(self, kind: str, name: str) -> Any:
        method = _SERVICE.methods_by_name[name]
        request, response = (getattr(wire, one.name) for one in (method.input_type, method.output_type))
        make = getattr(self._open(), kind)
        path = f"/{_SERVICE.full_name}/{name}"
        return make(path, request_serializer=request.SerializeToString, response_deserializer=response.FromString)

    async def call(self, name: str, request: Any, timeout_s: float) -> Any:
        """Return the answer of a unary method, whatever its status says.

        Raises ConnectFailed, ConnectionLost, RemotingTimeout.
        """
        await self.ready()
        address = self.address
        try:
            return await self._method("unary_unary", name)(request, metadata=self._metadata(), timeout=timeout_s)
        except grpc.RpcError as error:
            raise self._failed(error, address, timeout_s) from None

    async def stream(self, name: str, request: Any, timeout_s: float) -> AsyncIterator[Any]:
        """Yield the parts of an answer.  Raises as `call`."""
        await self.ready()
        address = self.address
        try:
            found = self._method("unary_stream", name)(request, metadata=self._metadata(), timeout=timeout_s)
            async for part in found:
                yield part
        except grpc.RpcError as error:
            raise self._failed(error, address, timeout_s) from None

    async def ready(self) -> None:
        """Wait until there is a token, if an async function fetches it.  Raises ClientError."""
        if isinstance(self._credentials, RenewedToken):
            await self._credentials.ready()

    def telemetry(self) -> Any:
        """Return a new telemetry stream, once `ready`."""
        return self._method("stream_stream", "Telemetry")(metadata=self._metadata())

    def _failed(self, error: grpc.RpcError, address: str, timeout_s: float) -> ClientError:
        failure = failure_of(error, address, timeout_s)
        if address == self.address and not isinstance(failure, RemotingTimeout):
            self.next_endpoint()
        return failure
