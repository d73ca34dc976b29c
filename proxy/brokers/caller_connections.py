"""Connections to brokers of one client each, so that a broker charges that client's quotas, not the proxy's.

A broker has quotas of accounts and addresses, and sees the proxy's.  While it has any, the requests of each client go
over a connection of their own, which begins with CHARGE_CALLER.  The broker believes that only of a proxy that signs
with the cluster's account, or is in its process.  So such a quota holds, and slows the client, as without a proxy.
Without such quotas all clients share one connection.  RocketMQ has nothing like it.
"""

import logging
from functools import partial
from itertools import islice
from typing import Final, NamedTuple

from proxy.status import Refusal
from sprocket.client.answers import header_of
from sprocket.client.connection.client_instance import ClientInstance
from sprocket.client.errors import ClientError, refusal
from sprocket.common.errors import ProtocolError
from sprocket.common.logs.peer_lines import peer_lines
from sprocket.grpc_wire import messaging_pb2 as wire
from sprocket.remoting.channel import RemotingChannel
from sprocket.remoting.client import RemotingClient
from sprocket.remoting.codes import RequestCode, ResponseCode
from sprocket.remoting.headers.quota import ChargeCallerRequestHeader, ChargeCallerResponseHeader

logger = logging.getLogger(__name__)

MAX_CALLERS: Final = 16_384
LOOK_S: Final = 1.0
# A connection that was not used for this time is closed.
_IDLE_S: Final = 60.0
# A broker that refuses the question is asked again after this time: its accounts may have changed.
_ASK_AGAIN_S: Final = 10.0
_TIMEOUT_S: Final = 2.0
# So many callers are looked at for one whose connections can be closed.
_OLDEST: Final = 64


class Caller(NamedTuple):
    """A client of the proxy: the account that it has proved, if any, and its address without the port."""

    account: str | None
    address: str


class _Own:
    """Connections of one caller, by address of a broker."""

    __slots__ = ("client", "used_s")

    def __init__(self, client: RemotingClient) -> None:
        self.client = client
        self.used_s = 0.0


class CallerConnections:
    """Connections of callers beside those of `instance`, which all share.  Lives in the event loop's thread.

    There are at most `max_connections`; None for no limit.
    """

    def __init__(self, instance: ClientInstance, max_connections: int | None = None) -> None:
        self._instance = instance
        self._max_connections = max_connections
        self._own: dict[Caller, _Own] = {}  # the last used is the last
        self._charging: frozenset[str] = frozenset()  # addresses of brokers that charge callers
        # Connections on which a broker did not know the question, or the proxy might not ask it; and until when not.
        self._refused: dict[str, tuple[RemotingChannel, float]] = {}

    def __len__(self) -> int:
        return len(self._own)

    @property
    def _max_callers(self) -> int:
        """How many callers may have connections; each has one to each broker that charges callers."""
        if self._max_connections is None:
            return MAX_CALLERS
        return max(1, min(MAX_CALLERS, self._max_connections // max(1, len(self._charging))))

    def open_channel(self, address: str, caller: Caller | None) -> RemotingChannel | None:
        """Return the connection to a broker for requests of `caller`, if it is open now."""
        if caller is None or address not in self._charging:
            return self._instance.remoting.open_channel(address)
        return self._used(caller).open_channel(address) if caller in self._own else None

    async def channel(self, address: str, caller: Caller | None) -> RemotingChannel:
        """Return an open connection to a broker for requests of `caller`.  Raises Refusal, ClientError."""
        if caller is None or address not in self._charging:
            return await self._instance.remoting.channel(address)
        while caller not in self._own and len(self._own) >= self._max_callers:
            await self._make_room()
        if caller not in self._own:
            header = ChargeCallerRequestHeader(account=caller.account, address=caller.address)
            self._own[caller] = _Own(self._instance.further_connections(partial(_introduce, header=header)))
        return await self._used(caller).channel(address)

    def _used(self, caller: Caller) -> RemotingClient:
        """Note that the connections of `caller`, which has some, are used now."""
        own = self._own[caller] = self._own.pop(caller)
        own.used_s = self._instance.clock.monotonic()
        return own.client

    async def _make_room(self) -> None:
        """Close the connections of the caller that was quiet for the longest: one client may have many addresses.

        Raises Refusal if all that come into question wait for answers.
        """
        for caller, own in islice(self._own.items(), _OLDEST):
            if not own.client.has_waiting:
                del self._own[caller]
                await own.client.close()
                return
        raise Refusal(wire.TOO_MANY_REQUESTS, f"{self._max_callers} clients with quotas use this proxy, try later")

    async def look(self) -> None:
        """Ask the masters that the proxy is connected with whether they charge callers; close unused connections."""
        charging = {address for address in self._instance.masters() if await self._charges(address)}
        if charging != self._charging:
            peer_lines.info(logger, "", "event=callers_charged brokers=%s", ",".join(sorted(charging)) or "none")
            self._charging = frozenset(charging)
        idle_s = self._instance.clock.monotonic() - _IDLE_S
        for caller, own in list(self._own.items()):
            if own.used_s < idle_s and not own.client.has_waiting and self._own.get(caller) is own:
                del self._own[caller]
                await own.client.close()

    async def _charges(self, address: str) -> bool:
        remoting, was_charging = self._instance.remoting, address in self._charging
        if not was_charging and remoting.open_channel(address) is None:
            return False  # nothing is sent there
        try:
            channel = await remoting.channel(address)
            refused_on, until_s = self._refused.get(address, (None, 0.0))
            if refused_on is channel and self._instance.clock.monotonic() < until_s:
                return False
            self._refused.pop(address, None)
            answer = await channel.request(RequestCode.CHARGE_CALLER, ChargeCallerRequestHeader(), timeout_s=_TIMEOUT_S)
            if answer.code == ResponseCode.SUCCESS:
                return header_of(answer, ChargeCallerResponseHeader).charges_callers
        except (ClientError, ProtocolError):
            return was_charging  # it may be busy
        if answer.code == ResponseCode.SYSTEM_BUSY:
            return was_charging
        self._refused[address] = channel, self._instance.clock.monotonic() + _ASK_AGAIN_S
        return False

    async def close(self) -> None:
        """Close all connections of callers."""
        for own in list(self._own.values()):
            await own.client.close()
        self._own.clear()


async def _introduce(channel: RemotingChannel, header: ChargeCallerRequestHeader) -> None:
    """Tell a broker who calls on a new connection.  Raises ClientError, and then nothing else is sent there."""
    answer = await channel.request(RequestCode.CHARGE_CALLER, header, timeout_s=_TIMEOUT_S)
    # A broker that has become an older one charges no callers: `look` will see it.
    if answer.code not in (ResponseCode.SUCCESS, ResponseCode.REQUEST_CODE_NOT_SUPPORTED):
        raise refusal(answer.code, answer.remark, f"{channel.peer[0]}:{channel.peer[1]}")
