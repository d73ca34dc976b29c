"""Warning of a broker with access control about a name server without access control.

At such a name server anybody can register a broker.  Brokers demand a proof before they accept or sign anything, see
`broker.auth.peer_identity` and `broker.slave.slave_sessions`; RocketMQ's clients do not.
"""

import logging
from typing import Final

from broker.auth.access_control import AccessControl
from broker.config.live_config import LiveConfig
from broker.periodic import Periodic
from broker.service import Service
from sprocket.common.errors import ClientError
from sprocket.remoting.client import RemotingClient
from sprocket.remoting.codes import RequestCode, ResponseCode
from sprocket.remoting.headers.admin import GetBrokerMemberGroupRequestHeader
from sprocket.remoting.tls.watch import ClientTls

logger = logging.getLogger(__name__)

_TURN_S: Final = 5.0
_TIMEOUT_S: Final = 3.0
_REFUSED: Final = frozenset({ResponseCode.NO_PERMISSION, ResponseCode.SYSTEM_ERROR})


class NameServerProbe(Service):
    """Probe of each name server with one unsigned request, once it is up.  Lives in the event loop's thread."""

    def __init__(self, config: LiveConfig, access: AccessControl, tls: ClientTls | None) -> None:
        self._config = config
        self._tls = tls
        self._unasked = list(config.broker.name_servers) if access.is_guarded else []

    def periodic(self) -> list[Periodic]:
        """Return the probe, until every name server has answered."""
        return [Periodic("name_server_probe", _TURN_S, self.look)] if self._unasked else []

    async def look(self) -> None:
        """Probe each name server that has not answered yet."""
        if not self._unasked:
            return
        broker = self._config.broker
        header = GetBrokerMemberGroupRequestHeader(
            cluster_name=broker.broker_cluster_name, broker_name=broker.broker_name
        )
        client = RemotingClient(tls=self._tls)
        try:
            for address in list(self._unasked):
                try:
                    answer = await client.invoke(
                        address, RequestCode.GET_BROKER_MEMBER_GROUP, header, timeout_s=_TIMEOUT_S
                    )
                except ClientError:
                    continue
                self._unasked.remove(address)
                if answer.code not in _REFUSED:
                    _warn(address)
        finally:
            await client.close()


def _warn(address: str) -> None:
    logger.warning(
        "event=weak_setting key=namesrvAddr note=%r",
        f"the name server {address} lets anybody register a broker under any name; brokers here refuse peers without"
        " proof, but clients send messages and signatures to every address in a route: set authenticationEnabled and"
        " authorizationEnabled there, or let only brokers and clients reach it",
    )
