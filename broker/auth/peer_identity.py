"""A broker's part in the proofs of identity between servers, see `acl.peer_identity`."""

from collections.abc import Callable

from acl.peer_identity import BROKER, NONCE_BYTES, PeerIdentity, PeerKind, demand_proof
from broker.auth.access_control import AccessControl
from broker.auth.replica_identity import new_nonce
from broker.config.live_config import LiveConfig
from broker.service import Service
from ha.shared_secret import secret_of
from sprocket.remoting.channel import RemotingChannel
from sprocket.remoting.client import Prover
from sprocket.remoting.routes import Route


class BrokerIdentity(Service):
    """Both ends of PROVE_BROKER_IDENTITY.  Lives in the event loop's thread."""

    def __init__(
        self,
        config: LiveConfig,
        access: AccessControl,
        random_bytes: Callable[[int], bytes] = new_nonce,
    ) -> None:
        self._config = config
        self._random_bytes = random_bytes
        self._is_guarded = access.is_guarded
        # A broker without an account has a random secret, which no other server knows.
        self._secret = random_bytes(NONCE_BYTES) if access.credentials is None else secret_of(access.credentials)
        self._asked = PeerIdentity(BROKER, self._secret if access.is_guarded else b"", access.gate, self._is_own)

    def prover(self, kind: PeerKind) -> Prover | None:
        """Return the demand for a proof on each new connection to a server of `kind`; None if none is demanded."""
        if not self._is_guarded or self._config.store.ha_allow_plain_peers:
            return None

        async def demand(channel: RemotingChannel, address: str) -> None:
            # Name servers are trusted.
            if address not in self._config.broker.name_servers:
                await demand_proof(kind, self._secret, self._random_bytes(NONCE_BYTES).hex(), channel, address)

        return demand

    def routes(self) -> list[Route]:
        """Return the route of PROVE_BROKER_IDENTITY."""
        return self._asked.routes()

    def _is_own(self, address: str, _: RemotingChannel) -> bool:
        return address == self._config.broker.address
