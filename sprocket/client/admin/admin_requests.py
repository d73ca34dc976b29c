"""Base of the administration client: connections, requests to name servers and brokers, and their errors.

Source of requests: RocketMQ 5.3.3, `MQClientAPIImpl`.
"""

import asyncio
from collections.abc import Awaitable, Mapping, Sequence
from typing import Final, TypeVar

from sprocket.client import arguments
from sprocket.client.answers import body_of, header_of
from sprocket.client.connection.wakeup import pause
from sprocket.client.errors import PermissionDenied, TlsUnusable, is_access_refusal
from sprocket.client.openable import Openable
from sprocket.common.errors import ClientError, ConfigError, NoLease, ProtocolError
from sprocket.remoting.bodies.client import MessageQueue, by_queue
from sprocket.remoting.bodies.route import MASTER_ID, ClusterInfo
from sprocket.remoting.bodies.stats import KVTable
from sprocket.remoting.client import ConnectFailed, ConnectionLost, ConnectionRefused, RemotingClient, RemotingTimeout
from sprocket.remoting.codes import RequestCode, ResponseCode
from sprocket.remoting.command import ReceivedResponse
from sprocket.remoting.credentials import Credentials
from sprocket.remoting.headers.base import Header
from sprocket.remoting.tls.settings import TlsSettings
from sprocket.remoting.tls.watch import ClientTls

T = TypeVar("T")
H = TypeVar("H", bound=Header)
_LEASE_PAUSE_S: Final = 0.1


class AdminError(ClientError):
    """A server refused the request or could not be reached; `code` is its response code, None without a response.

    `fields` are the header fields of the response, `remark` is its text.
    """

    def __init__(
        self, message: str, code: int | None = None, fields: Mapping[str, str] | None = None, remark: str | None = None
    ) -> None:
        super().__init__(message)
        self.code = code
        self.fields = fields or {}
        self.remark = remark


class NothingListens(AdminError):
    """The address of the server refuses connections: nothing listens there, or not yet."""


class AdminDenied(AdminError, PermissionDenied):
    """An AdminError that is a PermissionDenied too: access control refused."""

    code: int

    def __init__(
        self, message: str, code: int, remark: str | None, address: str, fields: Mapping[str, str] | None = None
    ) -> None:
        PermissionDenied.__init__(self, code, remark, address)
        self.args = (message,)
        self.fields = fields or {}


class ConfigRefused(AdminError):
    """A server refused a change of its configuration: unknown key, wrong value, or a key that must not change."""


class AdminRequests(Openable):
    """Connections to the name servers, tried in turn until one answers, and to their brokers."""

    def __init__(
        self, name_servers: str | Sequence[str], *, timeout_s: float = 5.0, credentials: Credentials | None = None,
        tls: TlsSettings | None = None,
    ) -> None:  # fmt: skip
        """`name_servers` is a list of addresses, or a str with ``;`` between them.  Raises IllegalArgument."""
        self.name_servers = arguments.addresses("name_servers", name_servers)
        self._timeout_s = arguments.timeout("timeout_s", timeout_s)
        arguments.optional("credentials", credentials, Credentials)
        arguments.optional("tls", tls, TlsSettings)
        self._tls = None if tls is None else ClientTls(tls)
        self._remoting = RemotingClient(credentials=credentials, tls=self._tls)

    async def start(self) -> None:
        """Start without connecting.  Raises TlsUnusable for invalid TLS files."""
        if self._tls is not None:
            try:
                self._tls.start()
            except ConfigError as error:
                raise TlsUnusable(str(error)) from None

    async def close(self) -> None:
        """Close the connections."""
        await self._remoting.close()

    async def cluster_info(self) -> ClusterInfo:
        """Return the clusters, their brokers and the brokers' addresses."""
        return decoded(await self.ask_name_server(RequestCode.GET_BROKER_CLUSTER_INFO), ClusterInfo)

    async def broker_addresses(self, cluster: str, *, masters_only: bool) -> list[str]:
        """Return the addresses of the brokers of `cluster`, by broker name and id."""
        info = await self.cluster_info()
        groups = [info.broker_addr_table.get(name) for name in broker_names(info, cluster)]
        return [
            address
            for group in groups
            if group is not None
            for id_, address in sorted(group.broker_addrs.items())
            if id_ == MASTER_ID or not masters_only
        ]

    async def broker_runtime_info(self, broker: str) -> dict[str, str]:
        """Return the runtime figures of the broker at an address."""
        return (await self.ask_body(broker, RequestCode.GET_BROKER_RUNTIME_INFO, KVTable)).table

    async def ask_name_servers(
        self, code: RequestCode, header: Header | None = None, body: bytes = b""
    ) -> dict[str, ReceivedResponse | AdminError]:
        """Send a request to all name servers at once.  Return, by address, the response or why there is none."""

        async def outcome(address: str) -> ReceivedResponse | AdminError:
            try:
                return await self.ask(address, code, header, body)
            except AdminError as error:
                return error

        outcomes = await asyncio.gather(*map(outcome, self.name_servers))
        return dict(zip(self.name_servers, outcomes, strict=True))

    async def tell_name_servers(self, code: RequestCode, header: Header) -> None:
        """Send a change to all name servers; raise the first error after all were asked."""
        for outcome in (await self.ask_name_servers(code, header)).values():
            if isinstance(outcome, AdminError):
                raise outcome

    async def ask_name_server(self, code: RequestCode, header: Header | None = None) -> ReceivedResponse:
        """Return the response of the first name server that answers, even a refusal."""
        for position, address in enumerate(self.name_servers, 1):
            try:
                return await self.ask(address, code, header)
            except AdminError as error:
                if error.code is not None or position == len(self.name_servers):
                    raise
        raise AdminError("no name server given")

    async def ask(
        self, address: str, code: RequestCode, header: Header | None = None, body: bytes = b"", *,
        timeout_s: float | None = None,
    ) -> ReceivedResponse:  # fmt: skip
        """Return the response of the server at `address`; a refusal raises AdminError with its code.

        A master that was elected a moment ago, or whose machine is busy, may lack its lease.  If it did nothing, the
        request is sent again until `timeout_s` has passed.
        """
        within_s = arguments.timeout_or("timeout_s", timeout_s, self._timeout_s)
        now_s = asyncio.get_running_loop().time
        until_s, refused = now_s() + within_s, ""
        try:
            response = await self._remoting.invoke(address, code, header, body, timeout_s=within_s)
            while response.remark == str(NoLease()) and (left_s := until_s - now_s() - _LEASE_PAUSE_S) > 0:
                refused = f"; the answer before: {response.remark}"
                await pause(_LEASE_PAUSE_S)
                response = await self._remoting.invoke(address, code, header, body, timeout_s=left_s)
        except ConnectionRefused as error:
            raise NothingListens(_unanswered(code, address, f"{error}{refused}")) from None
        except (ConnectFailed, ConnectionLost, RemotingTimeout) as error:
            raise AdminError(_unanswered(code, address, f"{error}{refused}")) from None
        if response.code != ResponseCode.SUCCESS:
            remark = f"{code.name} to {address}: CODE: {response.code}  DESC: {response.remark}"
            if is_access_refusal(response.code, response.remark):
                raise AdminDenied(remark, response.code, response.remark, address, response.ext_fields)
            raise AdminError(remark, response.code, response.ext_fields, response.remark)
        return response

    async def ask_body(
        self, address: str, code: RequestCode, kind: type[T], header: Header | None = None, body: bytes = b"", *,
        timeout_s: float | None = None,
    ) -> T:  # fmt: skip
        """Return the body of the response of the server at `address`, as `kind`."""
        return decoded(await self.ask(address, code, header, body, timeout_s=timeout_s), kind)

    async def ask_header(
        self, address: str, code: RequestCode, kind: type[H], header: Header | None = None, body: bytes = b""
    ) -> H:
        """Return the header of the response of the server at `address`, as `kind`."""
        return header_of(await self.ask(address, code, header, body), kind, AdminError)


def _unanswered(code: RequestCode, address: str, reason: str) -> str:
    """Return that a request has no answer, with the address once."""
    return f"{code.name}: {reason}" if address in reason else f"{code.name} to {address}: {reason}"


def decoded(response: ReceivedResponse, kind: type[T]) -> T:
    """Return the body of `response` as `kind`.  Raises AdminError."""
    return body_of(response.body, kind, AdminError)


async def none_if(code: ResponseCode, answer: Awaitable[T]) -> T | None:
    """Return `answer`, None if the server refuses with `code`."""
    try:
        return await answer
    except AdminError as error:
        if error.code == code:
            return None
        raise


def broker_names(info: ClusterInfo, cluster: str) -> list[str]:
    """Return the names of the broker groups of `cluster`, sorted.  Raises AdminError for an unknown cluster."""
    if cluster not in info.cluster_addr_table:
        known = ", ".join(sorted(info.cluster_addr_table)) or "none"
        raise AdminError(f"cluster {cluster} is not known; known are: {known}")
    return sorted(info.cluster_addr_table[cluster])


def queues_of(table: Mapping[str, T]) -> dict[MessageQueue, T]:
    """Return a table of a body with queues as its keys.  Raises AdminError."""
    try:
        return by_queue(table)
    except ProtocolError as error:
        raise AdminError(f"the answer's key is no queue: {error}") from None
