"""Exchange of HA addresses between the masters and slaves of a group.

A returning master announces itself to each slave before name servers know it.  A slave asks its master.
Source: RocketMQ 5.3.3, `AdminBrokerProcessor.updateBrokerHaInfo`, `resetMasterFlushOffset`,
`BrokerOuterAPI.sendBrokerHaInfo`, `retrieveBrokerHaInfo`.
"""

import logging
from collections.abc import Callable
from typing import Final

from broker.core import BrokerCore
from broker.service import Service
from sprocket.common.errors import ClientError
from sprocket.common.logs.peer_lines import peer_lines
from sprocket.remoting.codes import RequestCode, ResponseCode
from sprocket.remoting.command import Request, Response
from sprocket.remoting.headers.namesrv import (
    ExchangeHAInfoRequestHeader,
    ExchangeHAInfoResponseHeader,
    ResetMasterFlushOffsetHeader,
)
from sprocket.remoting.routes import Action, Resource, Route

logger = logging.getLogger(__name__)

_TIMEOUT_S: Final = 3.0


class HaExchange(Service):
    """Exchange of one broker.  Lives in the event loop's thread."""

    def __init__(self, core: BrokerCore) -> None:
        self._core = core
        self._initial_offset = 0
        # The master's flushed offset at its start, as it reported it; 0 before that.
        self.master_flush_offset = 0
        # Called when a master announces itself, with its address, empty if it sends none, and its HA address.
        self.on_master: list[Callable[[str, str], None]] = []

    def load(self) -> None:
        """Note the end of the log."""
        self._initial_offset = self._core.store.wrote_offset

    def routes(self) -> list[Route]:
        """Serve what members of the group announce and ask."""
        code, cluster, update = RequestCode, Resource.CLUSTER, Action.UPDATE
        return [
            Route(code.EXCHANGE_BROKER_HA_INFO, ExchangeHAInfoRequestHeader, self.exchange, cluster, update),
            Route(code.RESET_MASTER_FLUSH_OFFSET, ResetMasterFlushOffsetHeader, self.reset, cluster, update),
        ]

    def exchange(self, request: Request[ExchangeHAInfoRequestHeader]) -> Response:
        """EXCHANGE_BROKER_HA_INFO: take a master's address; a request without one asks for this master's own."""
        header, core = request.header, self._core
        if header.master_ha_address is None:
            return Response(header=ExchangeHAInfoResponseHeader() if core.role.is_slave else self._own_info())
        if core.role.is_slave and core.config.broker.enable_slave_acting_master:
            peer_lines.info(
                logger, "", "event=master_announced address=%s ha_address=%s",
                header.master_address, header.master_ha_address,
            )  # fmt: skip
            for listener in self.on_master:
                listener(header.master_address or "", header.master_ha_address)
        return Response(header=ExchangeHAInfoResponseHeader())

    def _own_info(self) -> ExchangeHAInfoResponseHeader:
        own = self._core.config.broker
        return ExchangeHAInfoResponseHeader(
            master_ha_address=own.ha_address, master_flush_offset=self._initial_offset, master_address=own.address
        )

    def reset(self, request: Request[ResetMasterFlushOffsetHeader]) -> Response:
        """RESET_MASTER_FLUSH_OFFSET: a slave keeps the offset that the master reports."""
        if self._core.role.is_slave and request.header.master_flush_offset is not None:
            self.master_flush_offset = request.header.master_flush_offset
        return Response()

    async def announce(self, slave_address: str) -> None:
        """Tell a slave that this master is about to come online.  Raises ClientError."""
        own = self._core.config.broker
        header = ExchangeHAInfoRequestHeader(
            master_ha_address=own.ha_address, master_flush_offset=self._initial_offset, master_address=own.address
        )
        await self._invoke(slave_address, header)

    async def ask(self, master_address: str) -> str:
        """Return a master's HA address, empty if it sends none.  Raises ClientError."""
        return await self._invoke(master_address, ExchangeHAInfoRequestHeader())

    async def _invoke(self, address: str, header: ExchangeHAInfoRequestHeader) -> str:
        response = await self._core.client.invoke(
            address, RequestCode.EXCHANGE_BROKER_HA_INFO, header, timeout_s=_TIMEOUT_S
        )
        if response.code != ResponseCode.SUCCESS:
            raise ClientError(f"{address} answers {response.code} {response.remark}")
        return response.header(ExchangeHAInfoResponseHeader).master_ha_address or ""
