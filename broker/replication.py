"""The master's side of replication: the port for slaves, who they are, and how far they are.

Source: RocketMQ 5.3.3, `DefaultHAService`, `AdminBrokerProcessor.getBrokerHaStatus`.
"""

from collections.abc import Callable
from dataclasses import replace

from broker.core import BrokerCore
from broker.periodic import Periodic
from broker.service import Service
from ha.listener import SlaveConnection, SlaveListener
from ha.master_link import LinkRules
from ha.replicas import ReplicaRules, Replicas
from remoting.bodies.stats import HAConnectionRuntimeInfo, HARuntimeInfo
from remoting.codes import RequestCode
from remoting.command import Request, Response
from remoting.fastjson import dumps
from remoting.routes import Action, NoHeader, Resource, Route
from store.config import StoreConfig

_SAMPLE_S = 1.0


class Replication(Service):
    """Serves slaves.  Lives in the event loop's thread.

    With `any_port` the port is a free one where the configuration names none; else the one after the broker's.
    """

    def __init__(self, core: BrokerCore, *, any_port: bool) -> None:
        config = core.config.store
        self._core = core
        self._any_port = any_port
        self._log = core.store.master_log()
        self.replicas = Replicas(ReplicaRules(config.ha_max_gap_not_in_sync))
        self.listener = SlaveListener(link_rules(config), self._log, self.replicas, core.clock, lambda: None)
        # What a slave says in place of a master's status.
        self.slave_status: Callable[[], HARuntimeInfo] | None = None
        # Bytes sent to each slave: until a second ago, and in that second.
        self._sent: dict[SlaveConnection, tuple[int, int]] = {}

    def routes(self) -> list[Route]:
        """What operators ask for."""
        return [Route(RequestCode.GET_BROKER_HA_STATUS, NoHeader, self.status, Resource.CLUSTER, Action.GET)]

    def periodic(self) -> list[Periodic]:
        """Count what goes in a second."""
        return [Periodic("replication", _SAMPLE_S, self._sample)]

    async def listen(self) -> None:
        """Open haListenPort."""
        broker = self._core.config.broker
        port = await self.listener.start(broker.bind_address, 0 if self._any_port else broker.ha_listen_port)
        self._core.config.replace_broker(replace(broker, ha_listen_port=port))
        self._log.on_append(self.listener.log_grew)

    def stop(self) -> None:
        """End all connections; slaves come again when there is a master."""
        self.listener.stop()

    def status(self, request: Request[NoHeader]) -> Response:
        """How far each slave is; of a slave, how far it is itself."""
        if self.slave_status is not None:
            return Response(body=dumps(self.slave_status()))
        end_offset = self._log.end_offset
        slaves = [self._slave(connection, end_offset) for connection in self.listener.connections]
        in_sync = sum(slave.in_sync for slave in slaves)
        return Response(body=dumps(HARuntimeInfo(True, end_offset, in_sync, slaves)))

    def _slave(self, connection: SlaveConnection, end_offset: int) -> HAConnectionRuntimeInfo:
        link = connection.link
        diff = end_offset - link.acked_offset
        is_in_sync = diff < self._core.config.store.ha_max_gap_not_in_sync
        _, per_second = self._sent.get(connection, (0, 0))
        return HAConnectionRuntimeInfo(
            connection.address, link.acked_offset, diff, is_in_sync, per_second, link.next_offset
        )

    def _sample(self) -> None:
        before = self._sent
        self._sent = {
            one: (one.link.sent_bytes, one.link.sent_bytes - before.get(one, (0, 0))[0])
            for one in self.listener.connections
        }


def link_rules(config: StoreConfig) -> LinkRules:
    """How a master talks to its slaves."""
    return LinkRules(
        heartbeat_s=config.ha_send_heartbeat_interval / 1000,
        housekeeping_s=config.ha_housekeeping_interval / 1000,
        batch_bytes=config.ha_transfer_batch_size,
        segment_bytes=config.mapped_file_size_commit_log,
        bytes_per_s=config.max_ha_transfer_byte_in_second if config.ha_flow_control_enable else 0,
    )
