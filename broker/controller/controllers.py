"""Requests of one broker to the controllers: which of them leads, and what it says.

Source: RocketMQ 5.3.3, `ReplicasManager`, `BrokerOuterAPI`.
"""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, TypeVar

import msgspec

from broker.controller.addresses import looked_up, parse_addresses
from broker.controller.tenure import Tenure
from sprocket.common.errors import ClientError, ProtocolError
from sprocket.remoting.bodies.controller import ElectMasterResponseBody, SyncStateSet
from sprocket.remoting.client import ConnectFailed, RemotingClient
from sprocket.remoting.codec.fastjson import dumps, loads
from sprocket.remoting.codes import RequestCode, ResponseCode
from sprocket.remoting.command import ReceivedResponse
from sprocket.remoting.headers.base import Header
from sprocket.remoting.headers.controller import (
    AlterSyncStateSetRequestHeader,
    ApplyBrokerIdRequestHeader,
    ElectMasterRequestHeader,
    ElectMasterResponseHeader,
    GetMetaDataResponseHeader,
    GetNextBrokerIdRequestHeader,
    GetNextBrokerIdResponseHeader,
    GetReplicaInfoRequestHeader,
    GetReplicaInfoResponseHeader,
    RegisterBrokerToControllerRequestHeader,
)
from sprocket.remoting.headers.namesrv import BrokerHeartbeatRequestHeader, BrokerHeartbeatResponseHeader

logger = logging.getLogger(__name__)

_TIMEOUT_S: Final = 3.0
_FIND_TIMEOUT_S: Final = 1.0
# Elections wait for the end of a lease.
_ELECT_TIMEOUT_S: Final = 8.0
# Requests that may be sent again although the first one may be carried out.
_READS: Final = frozenset({RequestCode.CONTROLLER_GET_REPLICA_INFO, RequestCode.CONTROLLER_GET_NEXT_BROKER_ID})
H = TypeVar("H", bound=Header)


class ControllerRefused(ClientError):
    """Answer of a controller that is not SUCCESS: `code`, and the controller's own words."""

    def __init__(self, code: int, remark: str | None) -> None:
        super().__init__(remark or f"code {code}")
        self.code = code


class NoController(ClientError):
    """No controller leads or answers; nothing was sent."""


@dataclass(frozen=True)
class GroupInfo:
    """A group as the controllers know it; `master_id` is None while it has no master."""

    master_epoch: int
    master_id: int | None
    master_address: str
    sync_state_set: frozenset[int]
    sync_state_set_epoch: int

    @property
    def tenure(self) -> Tenure | None:
        """The tenure of the master, None without one."""
        if self.master_id is None:
            return None
        return Tenure(
            self.master_epoch, self.master_id, self.master_address, self.sync_state_set, self.sync_state_set_epoch
        )


class Controllers:
    """The controllers of the key controllerAddr, asked over a client of their own, about one broker group.

    With `looks_up` each address of a host is a controller.  `resolve` may be called again and again.
    """

    def __init__(
        self,
        new_client: Callable[[], RemotingClient],
        cluster: str,
        name: str,
        configured: Callable[[], str],
        *,
        looks_up: bool,
    ) -> None:
        self._new_client = new_client
        self._opened: RemotingClient | None = None
        self._cluster = cluster
        self._name = name
        self._configured = configured
        self._looks_up = looks_up
        self._leader = ""
        self._doubted = asyncio.Event()
        self._said: set[str] = set()
        self.addresses: tuple[str, ...] = ()

    @property
    def _client(self) -> RemotingClient:
        """The client, made with the first request: the accounts that sign are loaded by then."""
        if self._opened is None:
            self._opened = self._new_client()
        return self._opened

    async def close(self) -> None:
        """Close all connections."""
        if self._opened is not None:
            await self._opened.close()

    async def resolve(self) -> None:
        """Find the addresses.  Those that are known stay if none is found."""
        addresses = parse_addresses(self._configured())
        if self._looks_up:
            addresses = await looked_up(addresses) or self.addresses
        self.addresses = addresses

    async def find_leader(self) -> str:
        """Ask all controllers at the same time for their leader.  Raises NoController.

        The first one that says that it leads counts.  What others name counts only for a leader that is not in
        controllerAddr: after the leader was lost, they name it until they have elected another one.
        """
        found, reasons = "", []
        asking = [asyncio.create_task(self._leader_of(address)) for address in self.addresses]
        try:
            async with asyncio.timeout(_FIND_TIMEOUT_S):
                for answer in asyncio.as_completed(asking):
                    named, is_leader, reason = await answer
                    if is_leader or (named and named not in self.addresses):
                        found = named
                    if is_leader:
                        break
                    reasons.append(reason)
        except TimeoutError:
            reasons.append(f"not all answered in {_FIND_TIMEOUT_S:g} s")
        finally:
            for task in asking:
                task.cancel()
        if not found:
            self._leader = ""
            raise NoController(f"no controller leads: {'; '.join(reasons) or 'controllerAddr names none'}")
        if found != self._leader:
            logger.info("event=controller_leader_found addr=%s", found)
        self._leader = found
        self._said.clear()
        return found

    async def _leader_of(self, address: str) -> tuple[str, bool, str]:
        """Return the leader that a controller names, whether that is itself, and why it does not count if it is not."""
        try:
            answer = await self._client.invoke(
                address, RequestCode.CONTROLLER_GET_METADATA_INFO, timeout_s=_FIND_TIMEOUT_S
            )
            if answer.code != ResponseCode.SUCCESS:
                return "", False, f"{address}: {_refusal(answer)}"
            said = _header(answer, GetMetaDataResponseHeader)
        except (ClientError, ProtocolError) as error:
            return "", False, f"{address}: {error}"
        named = said.controller_leader_address or ""
        return named, said.is_leader and bool(named), f"{address}: {f'names {named}' if named else 'knows no leader'}"

    def doubt_leader(self) -> None:
        """Find the leader again before the next request, because there was an election; leave an unanswered request."""
        self._leader = ""
        self._doubted.set()
        self._doubted = asyncio.Event()

    def say_once(self, reason: str) -> None:
        """Log why the controllers did not do what they were asked, once until that changes."""
        if reason not in self._said:
            self._said.add(reason)
            logger.warning("event=controllers_refused reason=%r", reason)

    async def _ask(
        self, code: RequestCode, header: Header, body: bytes = b"", timeout_s: float = _TIMEOUT_S
    ) -> ReceivedResponse:
        """Ask the leader, and its successor if it does not lead any more.

        Raises ClientError; ConnectFailed and NoController mean that nothing was sent.
        """
        for _ in range(3):
            leader = self._leader or await self.find_leader()
            try:
                answer = await self._unless_doubted(leader, code, header, body, timeout_s)
            except ConnectFailed:
                self._leader = ""
                continue
            except ClientError:
                self._leader = ""
                raise
            if answer is None:
                if code in _READS:
                    continue
                raise ClientError(f"there was an election before {leader} answered: the outcome is unknown")
            if answer.code != ResponseCode.CONTROLLER_NOT_LEADER:
                return answer
            self._leader = ""
        raise NoController(f"{leader} does not lead any more")

    async def _unless_doubted(
        self, leader: str, code: RequestCode, header: Header, body: bytes, timeout_s: float
    ) -> ReceivedResponse | None:
        """Return the answer of `leader`, None if it was doubted before it answered.  Raises ClientError."""
        asking = asyncio.ensure_future(self._client.invoke(leader, code, header, body, timeout_s=timeout_s))
        doubted = asyncio.create_task(self._doubted.wait())
        try:
            await asyncio.wait((asking, doubted), return_when=asyncio.FIRST_COMPLETED)
            return asking.result() if asking.done() else None
        finally:
            asking.cancel()
            doubted.cancel()

    async def _done(self, code: RequestCode, header: Header, body: bytes = b"") -> ReceivedResponse:
        answer = await self._ask(code, header, body)
        if answer.code != ResponseCode.SUCCESS:
            raise ControllerRefused(answer.code, _refusal(answer))
        return answer

    async def beat(
        self, address: str, header: BrokerHeartbeatRequestHeader, timeout_s: float
    ) -> BrokerHeartbeatResponseHeader:
        """Send a heartbeat to one controller.  Raises ClientError or ProtocolError."""
        answer = await self._client.invoke(address, RequestCode.BROKER_HEARTBEAT, header, timeout_s=timeout_s)
        if answer.code != ResponseCode.SUCCESS:
            raise ControllerRefused(answer.code, _refusal(answer))
        return _header(answer, BrokerHeartbeatResponseHeader)

    async def next_id(self) -> int:
        """Return the id to apply for.  Raises ClientError."""
        header = GetNextBrokerIdRequestHeader(cluster_name=self._cluster, broker_name=self._name)
        answer = await self._done(RequestCode.CONTROLLER_GET_NEXT_BROKER_ID, header)
        found = _header(answer, GetNextBrokerIdResponseHeader).next_broker_id
        if found is None:
            raise ControllerRefused(answer.code, "the controller names no broker id")
        return found

    async def apply_id(self, broker_id: int, check_code: str) -> None:
        """Let the controllers assign an id.  Raises ClientError."""
        header = ApplyBrokerIdRequestHeader(
            cluster_name=self._cluster,
            broker_name=self._name,
            applied_broker_id=broker_id,
            register_check_code=check_code,
        )
        await self._done(RequestCode.CONTROLLER_APPLY_BROKER_ID, header)

    async def register(self, broker_id: int, address: str) -> None:
        """Say where the broker is.  Raises ClientError."""
        header = RegisterBrokerToControllerRequestHeader(
            cluster_name=self._cluster, broker_name=self._name, broker_id=broker_id, broker_address=address
        )
        await self._done(RequestCode.CONTROLLER_REGISTER_BROKER, header)

    async def info(self) -> GroupInfo:
        """Return the group.  Raises ClientError or ProtocolError."""
        header = GetReplicaInfoRequestHeader(broker_name=self._name)
        answer = await self._done(RequestCode.CONTROLLER_GET_REPLICA_INFO, header)
        return _info(_header(answer, GetReplicaInfoResponseHeader), loads(answer.body, SyncStateSet))

    async def elect(self, broker_id: int) -> GroupInfo:
        """Ask for a master, which may be this broker.  Return the group with its master.  Raises ClientError."""
        header = ElectMasterRequestHeader(cluster_name=self._cluster, broker_name=self._name, broker_id=broker_id)
        answer = await self._ask(RequestCode.CONTROLLER_ELECT_MASTER, header, timeout_s=_ELECT_TIMEOUT_S)
        if answer.code not in (ResponseCode.SUCCESS, ResponseCode.CONTROLLER_MASTER_STILL_EXIST):
            raise ControllerRefused(answer.code, _refusal(answer))
        said = _header(answer, ElectMasterResponseHeader)
        body = loads(answer.body, ElectMasterResponseBody)
        return _info(said, SyncStateSet(body.sync_state_set, said.sync_state_set_epoch or 0))

    async def alter(self, tenure: Tenure, wanted: frozenset[int], epoch: int) -> SyncStateSet:
        """Ask for another sync-state set than that of `epoch`.  Return the one decided.

        Raises ControllerRefused if it is certainly not changed by this request, another ClientError if it may be.
        """
        header = AlterSyncStateSetRequestHeader(
            broker_name=self._name, master_broker_id=tenure.master_id, master_epoch=tenure.master_epoch
        )
        body = dumps(SyncStateSet(sorted(wanted), epoch))
        answer = await self._ask(RequestCode.CONTROLLER_ALTER_SYNC_STATE_SET, header, body)
        if answer.code == ResponseCode.SYSTEM_ERROR:
            raise ClientError(_refusal(answer))
        if answer.code != ResponseCode.SUCCESS:
            raise ControllerRefused(answer.code, _refusal(answer))
        return loads(answer.body, SyncStateSet)


def _info(said: GetReplicaInfoResponseHeader | ElectMasterResponseHeader, ids: SyncStateSet) -> GroupInfo:
    return GroupInfo(
        said.master_epoch or 0,
        said.master_broker_id if said.master_address else None,
        said.master_address or "",
        frozenset(ids.sync_state_set),
        ids.sync_state_set_epoch,
    )


def _header(answer: ReceivedResponse, kind: type[H]) -> H:
    try:
        return answer.header(kind)
    except msgspec.ValidationError as error:
        raise ProtocolError(kind.__name__, str(error)) from None


def _refusal(answer: ReceivedResponse) -> str:
    if answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
        return "this is no controller: correct controllerAddr"
    return answer.remark or f"code {answer.code}"
