"""The master's side of replication: the port for slaves, their state, and its effect on senders and consumers.

With SYNC_MASTER the slaves' acknowledgements decide what is acknowledged to senders and what consumers see.  Each read
of acknowledgements causes one check of all slaves, and at most one batch of responses.
Source: RocketMQ 5.3.3, `DefaultHAService`, `AdminBrokerProcessor.getBrokerHaStatus`.
"""

import logging
from collections.abc import Callable, Hashable
from dataclasses import replace
from math import inf
from typing import Final

from broker.config.broker_config import BrokerRole
from broker.config.live_config import LiveConfig
from broker.core import BrokerCore
from broker.periodic import Periodic
from broker.service import Service
from ha.autoswitch.master_link import AutoSwitchRules
from ha.listener import Sessions, SlaveConnection, SlaveListener
from ha.master_link import LinkRules
from ha.replicas import ReplicaRules, Replicas, ReplicationProgress
from sprocket.common.figures import Declared, Figure
from sprocket.common.logs.peer_lines import peer_lines
from sprocket.metrics.declared import Kind, Metric
from sprocket.remoting.bodies.stats import HAConnectionRuntimeInfo, HARuntimeInfo
from sprocket.remoting.codec.fastjson import dumps
from sprocket.remoting.codes import RequestCode
from sprocket.remoting.command import Request, Response
from sprocket.remoting.routes import Action, NoHeader, Resource, Route
from sprocket.remoting.serving.listening import KeptPort
from sprocket.remoting.tls.watch import ServerTls
from store.config.store_config import StoreConfig
from store.retention.back_pressure import Cause

logger = logging.getLogger(__name__)

_SAMPLE_S = 1.0
# Slaves start, connect and catch up after their master.  Those that need longer than this count as missing.
_SLAVES_MISSING_S = 30.0
# Each frame costs both ends some steps.  RocketMQ's 32 KiB fit slaves that read that much at once.
_SESSION_BATCH_BYTES = 256 * 1024

# Values of the figure sendStatus; every other value names why all sends are refused.  Without a descriptor some are.
CONFIRMED, ONE_COPY = "confirmed", "one_copy"
SEND_STATUSES: Final = (
    f"`{CONFIRMED}`: SEND_OK as configured; `{ONE_COPY}`: stored on too few replicas, SLAVE_NOT_AVAILABLE; or why it "
    "is refused: "
    + ", ".join(f"`{why}`" for why in ("slave", "no_lease", "recovering", *Cause) if why is not Cause.NO_DESCRIPTOR)
)

SlaveStatus = Callable[[], HARuntimeInfo]


class Replication(Service):
    """Service for slaves.  Lives in the event loop's thread.

    With `any_port` it binds a free port if the configuration names none; otherwise the one after the broker's.  `tls`
    allows or requires TLS for slaves.  A slave answers with `slave_status` in place of a master's status.  A `port` is
    another's to close.
    """

    def __init__(
        self,
        core: BrokerCore,
        sessions: Sessions,
        *,
        any_port: bool,
        tls: ServerTls | None = None,
        slave_status: SlaveStatus | None = None,
        port: KeptPort | None = None,
        autoswitch: AutoSwitchRules | None = None,
    ) -> None:
        config = core.config.store
        self._core = core
        self._any_port = any_port
        self._log = core.store.master_log()
        self._is_sync = core.role.kind is BrokerRole.SYNC_MASTER
        self.replicas = Replicas(replica_rules(core.config))
        if core.config.broker.enable_controller_mode:
            self.replicas.count_only(frozenset())  # until the controllers' set is known
        self._is_over = False
        self._progress: ReplicationProgress | None = None
        self._short_since_s: float | None = None  # when too few slaves were in sync first; inf once that was logged
        self._in_sync: frozenset[Hashable] = frozenset()
        self.listener = SlaveListener(
            link_rules(config),
            self._log,
            self.replicas,
            core.clock,
            self._acknowledged if self._is_sync else _nothing,
            sessions=sessions,
            is_awaited=self._is_sync,
            tls=tls,
            allows_cleartext=config.ha_allow_cleartext,
            port=port,
            autoswitch=autoswitch,
        )
        self._sessions = sessions
        self._slave_status = slave_status
        # Bytes sent to each slave: up to a second ago, and in that second.
        self._sent: dict[SlaveConnection, tuple[int, int]] = {}
        # Bytes sent on closed connections.
        self._sent_bytes = 0

    def configured(self, changed: dict[str, str]) -> None:
        """Apply changed rules, which may change the slaves in sync and the number required."""
        if not changed:
            return
        self.listener.configure(link_rules(self._core.config.store))
        rules = replica_rules(self._core.config)
        if rules != self.replicas.rules:
            self.replicas.configure(rules)
            if self._is_sync:
                self._acknowledged()

    def routes(self) -> list[Route]:
        """Serve what operators ask for."""
        return [Route(RequestCode.GET_BROKER_HA_STATUS, NoHeader, self.status, Resource.CLUSTER, Action.GET)]

    def periodic(self) -> list[Periodic]:
        """Check once a second which slaves are in sync, and measure the bytes sent."""
        return [Periodic("replication", _SAMPLE_S, self._sample)]

    def load(self) -> None:
        """Begin to apply what replicas have; what recovery found counts as confirmed."""
        if self._is_sync:
            self._acknowledged()

    async def bind(self) -> None:
        """Bind haListenPort early, because an outgoing connection could otherwise take the port."""
        broker = self._core.config.broker
        port = await self.listener.bind(broker.bind_address, 0 if self._any_port else broker.ha_listen_port)
        self._core.config.replace_broker(replace(broker, ha_listen_port=port))

    async def listen(self) -> None:
        """Serve haListenPort; a slave under controllers does not, because it may be taken for the master it was."""
        if self._core.role.is_slave and self._core.config.broker.enable_controller_mode:
            return
        await self.listener.start()
        self._log.on_append.append(self.listener.log_grew)

    def stop(self) -> None:
        """Close all connections; slaves reconnect once there is a master.

        They end later, when the log may be that of the next role.  So nothing that they change reaches it any more.
        """
        self._is_over = True
        self.listener.stop()

    def slave_hosts(self) -> list[str]:
        """Return the hosts of slaves whose log was compared with this one: a connection alone proves nothing."""
        return [one.peer[0] for one in self.listener.connections if one.link.requested_offset is not None]

    def has_sessions(self) -> bool:
        """Return whether a Sprocket slave follows the log."""
        return bool(self.listener.sessions)

    def status(self, request: Request[NoHeader]) -> Response:
        """GET_BROKER_HA_STATUS: a master reports each slave's progress, a slave its own."""
        if self._slave_status is not None:
            return Response(body=dumps(self._slave_status()))
        in_sync = len(self.replicas.in_sync_slaves())
        return Response(body=dumps(HARuntimeInfo(True, self._log.end_offset, in_sync, self._slaves())))

    def figures(self) -> list[Declared]:
        """Return the figures; RocketMQ has none of these names."""
        listener = self.listener
        return [
            Figure("haConnections", "connections of slaves", lambda: len(listener.connections)),
            Figure("haInSyncReplicas", "replicas in sync, with this one", self._in_sync_replicas),
            Figure("haRequiredReplicas", "replicas that must have a message before it is confirmed", self._required),
            Figure("sendStatus", f"what a send gets now: {SEND_STATUSES}", self.send_status),
            Figure(
                "haLearners",
                "connected slaves with asyncLearner",
                lambda: sum(one.link.is_learner for one in listener.connections),
            ),
            Figure("haSlaveLagBytes", "lag of the slowest slave, bytes", self._lag_bytes),
            Figure("haSlaveLagMillis", "lag of the slowest slave, ms; -1 if one never had the whole log", self._lag_ms),
            Figure(
                "haTlsConnections",
                "connections of slaves with TLS",
                lambda: sum(one.is_secured for one in listener.connections),
            ),
            Figure(
                "haTransferredByteInSecond",
                "bytes of the log sent to slaves in the last second",
                lambda: sum(slave.transferred_byte_in_second for slave in self._slaves()),
            ),
            Figure(
                "haSentBytes",
                "bytes of the log sent to slaves since the start",
                lambda: self._sent_bytes + sum(one.link.sent_bytes for one in listener.connections),
            ),
            Figure(
                "confirmOffset", "offset up to which consumers see the log", lambda: self._core.store.confirm_offset
            ),
            Figure("haSessions", "connections that speak Sprocket's sessions", lambda: len(listener.sessions)),
            Figure("haAuthentication", "what slaves must prove: none, secret, or secret of some", self._authentication),
            Figure("haTailRecovery", "whether the master waits for a slave's copy of its log", self._is_waiting),
        ]

    def exported_metrics(self) -> list[Metric]:
        """Return what a master knows of its replicas; a slave exports none of them."""

        def of_master(name: str, says: str, read: Callable[[], int]) -> Metric:
            return Metric(name, Kind.GAUGE, says, lambda: [] if self._core.role.is_slave else [((), read())])

        return [
            of_master(
                "sprocket_sends_confirmed",
                "1 if the master confirms sends as configured, 0 if it refuses them or answers SLAVE_NOT_AVAILABLE",
                lambda: int(self.send_status() == CONFIRMED),
            ),
            of_master("sprocket_replicas_in_sync", "replicas in sync, with the master", self._in_sync_replicas),
            of_master("sprocket_replicas_required", "replicas that a confirmed message must be on", self._required),
        ]

    def send_status(self) -> str:
        """Return what a send to an ordinary topic gets now, see `SEND_STATUSES`."""
        core, progress = self._core, self._progress
        if core.role.is_slave:
            return "slave"
        if not core.waits.may_acknowledge:
            return "no_lease"
        if not core.role.serves_group:
            return "recovering"
        cause = core.store.refusal_cause
        if cause is not None:
            return cause.value
        return CONFIRMED if progress is None or progress.is_enough else ONE_COPY

    def _in_sync_replicas(self) -> int:
        return 1 + len(self.replicas.in_sync_slaves())

    def _required(self) -> int:
        return self.replicas.required() if self._is_sync else 1

    def _slaves(self) -> list[HAConnectionRuntimeInfo]:
        end_offset = self._log.end_offset
        return [self._slave(connection, end_offset) for connection in self.listener.connections]

    def _lag_bytes(self) -> int:
        return max((slave.diff for slave in self._slaves()), default=0)

    def _lag_ms(self) -> int:
        behind_ms = [slave.behind_millis for slave in self._slaves()]
        return -1 if -1 in behind_ms else max(behind_ms, default=0)

    def _authentication(self) -> str:
        rules = self._sessions.rules
        if rules is None or not rules.credentials.secret:
            return "none"
        return "secret, plain peers too" if rules.credentials.allow_plain else "secret"

    def _is_waiting(self) -> bool:
        rules = self._sessions.rules
        return rules is not None and rules.tail.is_waiting

    def _slave(self, connection: SlaveConnection, end_offset: int) -> HAConnectionRuntimeInfo:
        link = connection.link
        behind_s = self.replicas.behind_s(connection.identity, end_offset, self._core.clock.monotonic())
        _, per_second = self._sent.get(connection, (0, 0))
        return HAConnectionRuntimeInfo(
            connection.address,
            link.acked_offset,
            end_offset - link.acked_offset,
            connection.identity in self.replicas.in_sync_slaves(),
            per_second,
            link.next_offset,
            -1 if behind_s is None else round(behind_s * 1000),
        )

    # Decisions of controllers: `broker.controller.tenure.SyncState`

    def in_sync(self) -> frozenset[int]:
        """Return the brokerIds of the slaves in sync by this master's own measure, without the master."""
        return self.replicas.in_sync()

    def holding(self, offset: int) -> frozenset[int]:
        """Return the brokerIds of the slaves that have the log up to `offset`."""
        return self.replicas.holding(offset)

    def require(self, acks: int) -> None:
        """Wait for so many replicas at least, see `Replicas.require`."""
        self.replicas.require(acks)
        if self._is_sync:
            self._acknowledged()

    def count_only(self, broker_ids: frozenset[int], may_lead: frozenset[int] | None = None) -> None:
        """Let only these slaves count for acknowledgements, see `Replicas.count_only`."""
        self.replicas.count_only(broker_ids, may_lead)
        if self._is_sync:
            self._acknowledged()

    # Progress of slaves

    def _acknowledged(self) -> None:
        """Apply the slaves' progress to a SYNC_MASTER's log after a slave acknowledged more or left."""
        progress, before = self.replicas.progress(), self._progress
        if self._is_over or progress == before:
            return
        self._progress = progress
        if before is None or before.is_enough != progress.is_enough or before.is_refusing != progress.is_refusing:
            # Slaves connect after their master, so too few of them at the start deserve no warning yet.
            was_better = before is not None and (
                before.is_enough > progress.is_enough or before.is_refusing < progress.is_refusing
            )
            peer_lines.log(
                logger, logging.WARNING if was_better else logging.INFO,
                "", "event=replicas_counted in_sync=%d required=%d refuses=%s",
                self._in_sync_replicas(), self.replicas.required(), progress.is_refusing,
            )  # fmt: skip
        self._log.replicated(
            progress.limit, progress.acknowledged, is_enough=progress.is_enough, is_refusing=progress.is_refusing
        )

    def _warn_of_missing_slaves(self, now_s: float) -> None:
        """Warn once each time too few slaves stay in sync."""
        if self._progress is None or self._progress.is_enough:
            self._short_since_s = None
        elif self._short_since_s is None:
            self._short_since_s = now_s
        elif now_s - self._short_since_s >= _SLAVES_MISSING_S:
            self._short_since_s = inf
            logger.warning(
                "event=replicas_missing in_sync=%d required=%d refuses=%s for_s=%d",
                self._in_sync_replicas(), self.replicas.required(), self._progress.is_refusing, _SLAVES_MISSING_S,
            )  # fmt: skip

    def _check_in_sync(self) -> None:
        self._warn_of_missing_slaves(self._core.clock.monotonic())
        self.replicas.check(self._log.end_offset, self._core.clock.monotonic())
        before, self._in_sync = self._in_sync, self.replicas.in_sync_slaves()
        for slave in self._in_sync - before:
            peer_lines.info(logger, "", "event=slave_in_sync slave=%s", slave)
        for slave in before - self._in_sync:
            peer_lines.warning(logger, "", "event=slave_not_in_sync slave=%s", slave)
        if self._is_sync:
            self._acknowledged()

    def _sample(self) -> None:
        self._check_in_sync()
        before = self._sent
        gone = before.keys() - set(self.listener.connections)
        self._sent_bytes += sum(one.link.sent_bytes for one in gone)
        self._sent = {
            one: (one.link.sent_bytes, one.link.sent_bytes - before.get(one, (0, 0))[0])
            for one in self.listener.connections
        }


def link_rules(config: StoreConfig) -> LinkRules:
    """Return the rules of a master's connections to slaves."""
    return LinkRules(
        heartbeat_s=config.ha_send_heartbeat_interval / 1000,
        housekeeping_s=config.ha_housekeeping_interval / 1000,
        batch_bytes=config.ha_transfer_batch_size,
        session_batch_bytes=max(config.ha_transfer_batch_size, _SESSION_BATCH_BYTES),
        segment_bytes=config.mapped_file_size_commit_log,
        bytes_per_s=config.max_ha_transfer_byte_in_second if config.ha_flow_control_enable else 0,
    )


def replica_rules(live: LiveConfig) -> ReplicaRules:
    """Return the rules that decide which slaves are in sync, and how many are required.

    Where a slave may act for its master, fewer than inSyncReplicas refuse as well, as in `CommitLog.asyncPutMessage`.
    """
    config = live.store
    min_replicas = config.min_in_sync_replicas
    if live.broker.enable_slave_acting_master and not config.enable_auto_in_sync_replicas:
        min_replicas = max(min_replicas, config.in_sync_replicas)
    return ReplicaRules(
        max_gap_bytes=config.ha_max_gap_not_in_sync,
        max_behind_s=config.ha_max_time_slave_not_catchup / 1000,
        in_sync_replicas=config.in_sync_replicas,
        min_in_sync_replicas=min_replicas,
        auto_in_sync_replicas=config.enable_auto_in_sync_replicas,
        all_in_sync=config.all_ack_in_sync_state_set,
        counts_flushed=config.ha_ack_flushed_offset,
    )


def _nothing() -> None:
    """Do nothing: with ASYNC_MASTER nothing waits for slaves."""
