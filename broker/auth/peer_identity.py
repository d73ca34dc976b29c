"""Proves to other brokers that this is one of the cluster, and has them prove the same before anything is signed.

A signature of RocketMQ's covers the values of a request's fields and its body: not the code, not the receiver, no time.
One request handed to a stranger can be replayed as any request without fields, for ever.  And the addresses of other
brokers come from name servers, where without access control anybody can register one.

So a broker that lets nobody in unsigned begins each connection to another broker with PROVE_BROKER_IDENTITY, which is
not signed.  Both ends prove that they know the account with which brokers sign, for the address that was dialed: a
broker proves its own address only, so a stranger that passes the question on gets no answer.
"""

import hashlib
import hmac
import struct
from collections.abc import Callable
from typing import Final

from broker.auth.access_control import AccessControl
from broker.core import BrokerCore
from broker.out.registration import Registration
from broker.replication.replica_identity import new_nonce, secret_of
from broker.service import Service
from sprocket.common.errors import ClientError, ProtocolError, RequestError
from sprocket.remoting.channel import RemotingChannel
from sprocket.remoting.client import ConnectFailed
from sprocket.remoting.codes import RequestCode, ResponseCode
from sprocket.remoting.command import Request, Response
from sprocket.remoting.headers.ha import ProveBrokerIdentityRequestHeader, ProveBrokerIdentityResponseHeader
from sprocket.remoting.routes import Action, Resource, Route

_NONCE_BYTES: Final = 32
_TIMEOUT_S: Final = 3.0
_CALLER: Final = "sprocket-peer-caller"
_CALLEE: Final = "sprocket-peer-callee"


def peer_proof(secret: bytes, end: str, address: str, nonce: str) -> str:
    """Return what shows that an end knows `secret`, for one connection to `address`; hexadecimal."""
    parts = [part.encode() for part in (end, address, nonce)]
    content = b"".join(struct.pack(">I", len(part)) + part for part in parts)
    return hmac.new(secret, content, hashlib.sha256).hexdigest()


class PeerIdentity(Service):
    """Both ends of the question.  Lives in the event loop's thread."""

    def __init__(
        self,
        core: BrokerCore,
        registration: Registration,
        access: AccessControl,
        random_bytes: Callable[[int], bytes] = new_nonce,
    ) -> None:
        self._core = core
        self._own_address = registration
        self._access = access
        self._random_bytes = random_bytes
        account = access.credentials
        # A broker that signs nothing itself has it in common with nobody.
        self._secret = random_bytes(_NONCE_BYTES) if account is None else secret_of(account)
        if access.is_guarded and not core.config.store.ha_allow_plain_peers:
            core.client.prover = self.ask

    def routes(self) -> list[Route]:
        """What another broker asks before it signs."""
        return [
            Route(
                RequestCode.PROVE_BROKER_IDENTITY, ProveBrokerIdentityRequestHeader, self.answer, Resource.CLUSTER,
                Action.UPDATE,
            )
        ]  # fmt: skip

    def answer(self, request: Request[ProveBrokerIdentityRequestHeader]) -> Response:
        """PROVE_BROKER_IDENTITY: prove it to a broker that has proved it.  Raises RequestError for anybody else."""
        header, own = request.header, self._own_address.address
        if not self._access.is_guarded:
            raise RequestError(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, "this broker has no access control")
        expected = peer_proof(self._secret, _CALLER, header.address, header.nonce)
        if not hmac.compare_digest(expected.encode(), header.proof.encode()):
            self._access.gate.proof_failed(request)
            raise RequestError(
                ResponseCode.NO_PERMISSION, "the proof is wrong: brokers of one cluster sign with the same account"
            )
        if header.address != own:
            raise RequestError(ResponseCode.NO_PERMISSION, f"the question is for {header.address}, this is {own}")
        proof = peer_proof(self._secret, _CALLEE, header.address, header.nonce)
        return Response(header=ProveBrokerIdentityResponseHeader(proof=proof))

    async def ask(self, channel: RemotingChannel, address: str) -> None:
        """Have the broker at the other end prove itself; name servers are trusted.  Raises ConnectFailed."""
        if address in self._core.config.broker.name_servers:
            return
        nonce = self._random_bytes(_NONCE_BYTES).hex()
        header = ProveBrokerIdentityRequestHeader(
            address=address, nonce=nonce, proof=peer_proof(self._secret, _CALLER, address, nonce)
        )
        try:
            answer = await channel.request(RequestCode.PROVE_BROKER_IDENTITY, header, timeout_s=_TIMEOUT_S)
            reason = f"code {answer.code}: {answer.remark}"
            given = ""
            if answer.code == ResponseCode.SUCCESS:
                given, reason = answer.header(ProveBrokerIdentityResponseHeader).proof, "its proof is wrong"
        except (ClientError, ProtocolError) as error:
            given, reason = "", str(error)
        expected = peer_proof(self._secret, _CALLEE, address, nonce)
        if not hmac.compare_digest(expected.encode(), given.encode()):
            raise ConnectFailed(
                f"{address} does not prove that it is a broker of this cluster ({reason}), so nothing is signed for it;"
                " give all brokers the same account, or set haAllowPlainPeers = true while brokers of RocketMQ are here"
            )
