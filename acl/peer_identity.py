"""Mutual proof of two servers that they belong to the same cluster, before one signs a request for the other.

RocketMQ's signature covers the values of a request's fields and its body, but not the code, the receiver or a time.
So a stranger that gets one signed request can replay it for ever as any request without fields.  The addresses of
brokers come from name servers, where anybody can register a broker if there is no access control.

Therefore a broker with access control begins each connection to another broker or to a controller with
PROVE_BROKER_IDENTITY, which is not signed.  Both ends prove that they know the account with which servers sign, for the
address that was connected to.  A server proves its own address only, so a stranger that forwards the request gets no
proof.
"""

import hashlib
import hmac
import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from acl.gate import Gate
from sprocket.common.errors import ClientError, ProtocolError, RequestError
from sprocket.common.refusal_reasons import Reason
from sprocket.remoting.addresses import numeric_host
from sprocket.remoting.channel import RemotingChannel
from sprocket.remoting.client import ConnectFailed, split_address
from sprocket.remoting.codes import RequestCode, ResponseCode
from sprocket.remoting.command import Request, Response
from sprocket.remoting.headers.ha import ProveBrokerIdentityRequestHeader, ProveBrokerIdentityResponseHeader
from sprocket.remoting.routes import Action, Resource, Route

NONCE_BYTES: Final = 32
# For a gate: the handler checks this field, before any signature.
SELF_CHECKED: Final = {int(RequestCode.PROVE_BROKER_IDENTITY): "proof"}
_TIMEOUT_S: Final = 3.0


@dataclass(frozen=True)
class PeerKind:
    """Kind of the server that is asked, and the labels of the two ends: a proof for one kind is none for another."""

    name: str
    caller: str
    callee: str


BROKER: Final = PeerKind("broker", "sprocket-peer-caller", "sprocket-peer-callee")
CONTROLLER: Final = PeerKind("controller", "sprocket-controller-caller", "sprocket-controller-callee")


def peer_proof(secret: bytes, end: str, address: str, nonce: str) -> str:
    """Return the proof that an end knows `secret`, for one connection to `address`; hexadecimal."""
    parts = [part.encode() for part in (end, address, nonce)]
    content = b"".join(struct.pack(">I", len(part)) + part for part in parts)
    return hmac.new(secret, content, hashlib.sha256).hexdigest()


def is_dialed(own: str, address: str, local_host: str) -> bool:
    """Return whether `address` may be another spelling of `own`, for a connection that arrived at `local_host`.

    A name is not looked up: who may change what it stands for may also change where the connection goes.
    """
    if address == own:
        return True
    try:
        host, port = split_address(address)
    except ValueError:
        return False
    return port == split_address(own)[1] and (numeric_host(host) is None or host == local_host)


class PeerIdentity:
    """The end that is asked: serves PROVE_BROKER_IDENTITY.  Lives in the event loop's thread.

    `secret` is empty if this server has no account to prove.  `is_own` returns whether a dialed address is this
    server's, for a connection.
    """

    def __init__(
        self, kind: PeerKind, secret: bytes, gate: Gate, is_own: Callable[[str, RemotingChannel], bool]
    ) -> None:
        self._kind = kind
        self._secret = secret
        self._gate = gate
        self._is_own = is_own

    def routes(self) -> list[Route]:
        """Return the route of PROVE_BROKER_IDENTITY."""
        return [
            Route(
                RequestCode.PROVE_BROKER_IDENTITY, ProveBrokerIdentityRequestHeader, self.answer, Resource.CLUSTER,
                Action.UPDATE,
            )
        ]  # fmt: skip

    def answer(self, request: Request[ProveBrokerIdentityRequestHeader]) -> Response:
        """Prove this server's identity to a peer that has proved its own.  Raises RequestError for any other peer."""
        header, kind = request.header, self._kind
        if not self._secret:
            remark = f"this {kind.name} has no access control, or no account with which it signs"
            raise RequestError(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, remark)
        expected = peer_proof(self._secret, kind.caller, header.address, header.nonce)
        if not hmac.compare_digest(expected.encode(), header.proof.encode()):
            self._gate.proof_failed(request)
            raise RequestError(
                ResponseCode.NO_PERMISSION,
                "the proof is wrong: all brokers and controllers of one cluster sign with the same account",
                Reason.WRONG_SIGNATURE,
            )
        channel: RemotingChannel = request.channel
        if not self._is_own(header.address, channel):
            remark = f"the request is for {header.address}, which is not the address of this {kind.name}"
            raise RequestError(ResponseCode.NO_PERMISSION, remark)
        proof = peer_proof(self._secret, kind.callee, header.address, header.nonce)
        return Response(header=ProveBrokerIdentityResponseHeader(proof=proof))


async def demand_proof(kind: PeerKind, secret: bytes, nonce: str, channel: RemotingChannel, address: str) -> None:
    """Demand a proof from the server at the other end, which must be one of `kind`.  Raises ConnectFailed."""
    header = ProveBrokerIdentityRequestHeader(
        address=address, nonce=nonce, proof=peer_proof(secret, kind.caller, address, nonce)
    )
    try:
        answer = await channel.request(RequestCode.PROVE_BROKER_IDENTITY, header, timeout_s=_TIMEOUT_S)
        reason = f"code {answer.code}: {answer.remark}"
        given = ""
        if answer.code == ResponseCode.SUCCESS:
            given, reason = answer.header(ProveBrokerIdentityResponseHeader).proof, "its proof is wrong"
    except (ClientError, ProtocolError) as error:
        given, reason = "", str(error)
    expected = peer_proof(secret, kind.callee, address, nonce)
    if not hmac.compare_digest(expected.encode(), given.encode()):
        raise ConnectFailed(
            f"{address} does not prove that it is a {kind.name} of this cluster ({reason}), so no request is sent to"
            " it; give all brokers and controllers the same account, or set haAllowPlainPeers = true while servers of"
            " RocketMQ are here"
        )
