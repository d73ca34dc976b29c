"""Mutual proof of two brokers that they belong to the same cluster, before one signs a request for the other.

RocketMQ's signature covers the values of a request's fields and its body, but not the code, the receiver or a time.
So a stranger that gets one signed request can replay it for ever as any request without fields.  The addresses of
other brokers come from name servers, where anybody can register a broker if there is no access control.

Therefore a broker with access control begins each connection to another broker with PROVE_BROKER_IDENTITY, which is
not signed.  Both ends prove that they know the account with which brokers sign, for the address that was connected to.
A broker proves its own address only, so a stranger that forwards the request gets no proof.
"""

import hashlib
import hmac
import struct
from collections.abc import Callable
from typing import Final

from broker.auth.access_control import AccessControl
from broker.config.live_config import LiveConfig
from broker.replication.replica_identity import new_nonce, secret_of
from broker.service import Service
from sprocket.common.errors import ClientError, ProtocolError, RequestError
from sprocket.common.refusal_reasons import Reason
from sprocket.remoting.channel import RemotingChannel
from sprocket.remoting.client import ConnectFailed, Prover
from sprocket.remoting.codes import RequestCode, ResponseCode
from sprocket.remoting.command import Request, Response
from sprocket.remoting.headers.ha import ProveBrokerIdentityRequestHeader, ProveBrokerIdentityResponseHeader
from sprocket.remoting.routes import Action, Resource, Route

_NONCE_BYTES: Final = 32
_TIMEOUT_S: Final = 3.0
_CALLER: Final = "sprocket-peer-caller"
_CALLEE: Final = "sprocket-peer-callee"


def peer_proof(secret: bytes, end: str, address: str, nonce: str) -> str:
    """Return the proof that an end knows `secret`, for one connection to `address`; hexadecimal."""
    parts = [part.encode() for part in (end, address, nonce)]
    content = b"".join(struct.pack(">I", len(part)) + part for part in parts)
    return hmac.new(secret, content, hashlib.sha256).hexdigest()


class PeerIdentity(Service):
    """Both ends of PROVE_BROKER_IDENTITY.  Lives in the event loop's thread."""

    def __init__(
        self,
        config: LiveConfig,
        access: AccessControl,
        random_bytes: Callable[[int], bytes] = new_nonce,
    ) -> None:
        self._config = config
        self._access = access
        self._random_bytes = random_bytes
        account = access.credentials
        # A broker without an account has a random secret, which no other broker knows.
        self._secret = random_bytes(_NONCE_BYTES) if account is None else secret_of(account)

    @property
    def prover(self) -> Prover | None:
        """The demand for a proof on each new connection; None if no proof is demanded."""
        return self.ask if self._access.is_guarded and not self._config.store.ha_allow_plain_peers else None

    def routes(self) -> list[Route]:
        """Return the route of PROVE_BROKER_IDENTITY."""
        return [
            Route(
                RequestCode.PROVE_BROKER_IDENTITY, ProveBrokerIdentityRequestHeader, self.answer, Resource.CLUSTER,
                Action.UPDATE,
            )
        ]  # fmt: skip

    def answer(self, request: Request[ProveBrokerIdentityRequestHeader]) -> Response:
        """Prove this broker's identity to a peer that has proved its own.  Raises RequestError for any other peer."""
        header, own = request.header, self._config.broker.address
        if not self._access.is_guarded:
            raise RequestError(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, "this broker has no access control")
        expected = peer_proof(self._secret, _CALLER, header.address, header.nonce)
        if not hmac.compare_digest(expected.encode(), header.proof.encode()):
            self._access.gate.proof_failed(request)
            raise RequestError(
                ResponseCode.NO_PERMISSION,
                "the proof is wrong: brokers of one cluster sign with the same account",
                Reason.WRONG_SIGNATURE,
            )
        if header.address != own:
            raise RequestError(ResponseCode.NO_PERMISSION, f"the request is for {header.address}, this is {own}")
        proof = peer_proof(self._secret, _CALLEE, header.address, header.nonce)
        return Response(header=ProveBrokerIdentityResponseHeader(proof=proof))

    async def ask(self, channel: RemotingChannel, address: str) -> None:
        """Demand a proof from the broker at the other end; name servers are trusted.  Raises ConnectFailed."""
        if address in self._config.broker.name_servers:
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
                f"{address} does not prove that it is a broker of this cluster ({reason}), so no request is sent to it;"
                " give all brokers the same account, or set haAllowPlainPeers = true while brokers of RocketMQ are here"
            )
