"""A master's sessions with Sprocket slaves: whether they are on, which slaves are accepted, which tables they get.

A slave asks at the port for clients before it connects to the port for slaves.  A RocketMQ broker does not know the
request, and gets RocketMQ's protocol.
"""

import asyncio
import logging
from collections.abc import Callable, Hashable
from pathlib import Path
from typing import Final

from broker.auth.access_control import AccessControl
from broker.auth.replica_identity import credentials
from broker.config.broker_config import BrokerRole
from broker.core import BrokerCore
from broker.periodic import Periodic
from broker.replication.empty_start import ASK_S, AskMembers, EmptyStart, no_members
from broker.replication.replicated_tables import ReplicatedTables
from broker.replication.replication import replica_rules
from broker.replication.safe_changes import SafeChanges
from broker.replication.table_stream import EarlyTables
from broker.service import Service
from broker.turns import NextTurn
from ha.epochs.epoch_file import EpochFile
from ha.hello import EPOCH_VERSION, VERSION
from ha.master_session import MasterSession, SessionRules
from ha.shared_secret import read_secret
from ha.tail_recovery import TailRecovery
from sprocket.common.errors import ConfigError, RequestError
from sprocket.common.refusal_reasons import Reason
from sprocket.remoting.addresses import numeric_hosts
from sprocket.remoting.codes import RequestCode, ResponseCode
from sprocket.remoting.command import Request, Response
from sprocket.remoting.headers.ha import NegotiateHaSessionRequestHeader, NegotiateHaSessionResponseHeader
from sprocket.remoting.routes import Action, Resource, Route
from sprocket.remoting.tls.watch import ServerTls
from store.replica.replica_log import StoreReplicaLog

logger = logging.getLogger(__name__)

_TIME_IS_UP: Final = "no slave reported in time whether it has more"


class MasterSessions(Service):
    """Sessions of one master, in the event loop's thread.

    They are `ha.listener.Sessions` for the port for slaves, whose TLS is `tls`.

    A master's epoch is the time of its start in ms, so each start has another one.  In controller mode it is that of
    the controllers, see `lead`.  There, `epochs` is the history of the log, and `on_newer_epoch` is called with a newer
    epoch that a slave knows.
    """

    def __init__(
        self,
        core: BrokerCore,
        tables: ReplicatedTables,
        changes: SafeChanges,
        *,
        access: AccessControl | None = None,
        tls: ServerTls | None = None,
        ask_members: AskMembers = no_members,
        epochs: EpochFile | None = None,
        on_newer_epoch: Callable[[int], None] = lambda _: None,
    ) -> None:
        self._core = core
        self._access = access
        self._tls = tls
        self._tables = tables
        self._epochs = epochs
        self._on_newer_epoch = on_newer_epoch
        self._min_replicas = replica_rules(core.config).min_in_sync_replicas
        # Some tables do not wait for a look.
        self.before_log: Callable[[MasterSession], None] = EarlyTables(tables, changes).send
        self._rules: SessionRules | None = None
        self._time_limit = NextTurn(self._time_is_up, core.clock.monotonic, core.call_later)
        self._log: StoreReplicaLog | None = None
        self.tail = TailRecovery()
        # Set while the store is empty and a slave may have all data.
        self._empty: EmptyStart | None = None
        self._began_at = core.clock.monotonic()
        self._asking: asyncio.Task[None] | None = None
        self._ask_members = ask_members

    def routes(self) -> list[Route]:
        """Serve the request with which slaves negotiate."""
        return [
            Route(
                RequestCode.NEGOTIATE_HA_SESSION, NegotiateHaSessionRequestHeader, self.negotiate, Resource.CLUSTER,
                Action.UPDATE,  # the session carries the whole log
            )
        ]  # fmt: skip

    def periodic(self) -> list[Periodic]:
        """With an empty store, ask for the members of the group."""
        if self._core.role.kind is not BrokerRole.SYNC_MASTER:
            return []
        return [Periodic("empty_start", ASK_S, self._look_for_members)]

    @property
    def rules(self) -> SessionRules | None:
        """Rules of new sessions; None on a slave, without haSessionEnable, and before `load`."""
        return self._rules

    def check(self) -> None:
        """Raise ConfigError for haSecretFile, or where slaves must prove themselves but cannot."""
        store = self._core.config.store
        if store.ha_secret_file:
            read_secret(Path(store.ha_secret_file))
        if not store.ha_session_enable and not self._core.role.is_slave:
            self._check_open()

    def load(self) -> None:
        """Read the secret, and begin to wait where only a slave may have the log or its tail.

        Raises ConfigError for haSecretFile.
        """
        core, store = self._core, self._core.config.store
        if self._epochs is not None:
            last = self._epochs.history.last
            if last is not None and not core.role.is_slave:
                self.lead(last.number)
            return
        if core.role.is_slave or not store.ha_session_enable:
            return
        # Controllers have chosen the best log already.
        is_chosen = core.config.broker.enable_controller_mode
        may_wait = core.role.kind is BrokerRole.SYNC_MASTER and store.ha_tail_recovery_wait and not is_chosen
        if may_wait and (self._may_lack_tail() or self._may_show_too_much()):
            self._log = core.store.replica()
            self._log.recover_tail()
            if self._has_no_log():
                wait_ms = store.ha_tail_recovery_wait
                self._empty = EmptyStart(core.config.broker.broker_id, wait_ms, self._begin_empty)
            self.tail = TailRecovery(
                self._log, self._recovered, needs_copy=self._may_show_too_much(),
                on_empty_slave=None if self._empty is None else self._slave_is_empty,
            )  # fmt: skip
            is_empty = self._empty is not None
            core.role.recover(True, hides_log=is_empty or self._may_show_too_much(), lacks_tables=is_empty)
        own = credentials(core, self._access)
        self._rules = SessionRules(
            own, core.clock.wall_ms(), store.ha_ack_flushed_offset, self.tail, store.sync_from_last_file,
            self._tables.install,
        )  # fmt: skip
        logger.info("event=ha_sessions authentication=%s identity=%r", bool(own.secret), str(own.identity))

    def lead(self, epoch: int) -> None:
        """Accept slaves as the master of `epoch`, the last one of `epochs`, once older sessions are closed.

        In controller mode no tail is recovered from slaves: the best log was elected.  Raises ConfigError for
        haSecretFile.
        """
        core, store = self._core, self._core.config.store
        if not store.ha_session_enable:
            return
        if self._epochs is not None:
            # Here, because an epoch is added with each role, and never between two.
            self._epochs.without_before(core.store.master_log().min_offset)
        own = credentials(core, self._access)
        self._rules = SessionRules(
            own, epoch, store.ha_ack_flushed_offset, self.tail, store.sync_from_last_file, self._tables.install,
            epochs=self._epochs, on_newer_epoch=self._on_newer_epoch,
        )  # fmt: skip
        logger.info(
            "event=ha_sessions epoch=%d authentication=%s identity=%r", epoch, bool(own.secret), str(own.identity)
        )

    def rest(self) -> None:
        """Accept no slaves: this broker is no master."""
        self._rules = None

    def _check_open(self) -> None:
        """Raise ConfigError if anyone who reaches the port would get the log although access is controlled."""
        if self._access is not None and self._access.is_replication_guarded:
            raise ConfigError(
                "haSessionEnable = false: slaves cannot prove who they are, which haSecretFile and access control "
                "require. Set haSessionEnable = true, or haAllowPlainPeers = true if anyone who reaches haListenPort "
                "may have the log"
            )

    def _may_lack_tail(self) -> bool:
        report = self._core.store.recovery
        if self._has_no_log():
            return True  # its slaves can tell a new broker from one that lost its disk
        return report is not None and not report.was_clean

    def _has_no_log(self) -> bool:
        return self._core.store.wrote_offset == 0

    def _may_show_too_much(self) -> bool:
        """Return whether the log may hold messages that no slave has and that minInSyncReplicas must hide."""
        report = self._core.store.recovery
        return self._min_replicas > 1 and report is not None and report.end_offset > 0

    def start(self) -> None:
        """Start to wait for slaves."""
        if self.tail.is_waiting:
            wait_ms = self._core.config.store.ha_tail_recovery_wait
            # A new broker deserves no warning; `EmptyStart` finds out whether it is one.
            level = logging.WARNING if self._empty is None else logging.INFO
            logger.log(level, "event=tail_recovery_waits log_end=%d wait_ms=%d", self._core.store.wrote_offset, wait_ms)
            self._began_at = self._core.clock.monotonic()
            if self._empty is None:
                self._set_timer()

    async def _look_for_members(self) -> None:
        """While the store is empty, ask for the group's members, and start without data if that is safe."""
        if self._empty is None or not self.tail.is_waiting or self.tail.is_fetching or self.tail.needs_tables:
            return
        members = await self._ask_members()
        hosts = {number: await numeric_hosts(address) for number, address in (members or {}).items()}
        if self.tail.is_waiting and not self._core.store.wrote_offset:
            self._empty.members_known(members, (self._core.clock.monotonic() - self._began_at) * 1000, hosts)

    def _slave_is_empty(self, name: Hashable) -> None:
        assert self._empty is not None
        self._empty.slave_is_empty(name)
        if self._ask_members is no_members:
            self._empty.members_known({}, 0, {})
        elif self._asking is None:
            # Ask at once, so that a new pair does not wait for the next look.
            self._asking = asyncio.get_running_loop().create_task(self._look_for_members())
            self._asking.add_done_callback(self._asked)

    def _asked(self, task: "asyncio.Task[None]") -> None:
        self._asking = None
        if not task.cancelled() and task.exception() is not None:
            logger.error("event=members_unknown reason=%r", str(task.exception()))

    def _begin_empty(self, reason: str) -> None:
        if not self.tail.is_fetching:
            self.tail.finish(reason)

    def _set_timer(self) -> None:
        self._time_limit.wake_in(self._core.config.store.ha_tail_recovery_wait / 1000)

    def _time_is_up(self) -> None:
        if self.tail.is_fetching:
            # A long tail may take longer.
            self._set_timer()
        else:
            self.tail.finish(_TIME_IS_UP)

    def _recovered(self, _reason: str) -> None:
        self._time_limit.cancel()
        if self._log is not None:
            self._log.lead()
        self._core.role.recover(False)

    def stop(self) -> None:
        """Stop waiting."""
        self._time_limit.cancel()
        if self._asking is not None:
            self._asking.cancel()

    def negotiate(self, request: Request[NegotiateHaSessionRequestHeader]) -> Response:
        """Return the version that both ends speak.  Raises RequestError without sessions or for another group."""
        header, broker = request.header, self._core.config.broker
        rules = self._rules
        if self._core.role.is_slave and broker.enable_controller_mode:
            # It may be about to lead: the slave must not fall back to the plain protocol meanwhile.
            raise RequestError(ResponseCode.SERVICE_NOT_AVAILABLE, "this broker is no master now", Reason.SLAVE)
        if rules is None:
            raise RequestError(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, "this broker offers no HA sessions")
        if (header.cluster_name, header.broker_name) != (broker.broker_cluster_name, broker.broker_name):
            remark = f"this is {broker.broker_cluster_name}/{broker.broker_name}"
            raise RequestError(ResponseCode.SYSTEM_ERROR, remark)
        version = min(VERSION if self._epochs is None else EPOCH_VERSION, header.version)
        takes_tls = self._tls is not None and self._tls.is_offered
        return Response(
            header=NegotiateHaSessionResponseHeader(version=version, epoch=rules.epoch, takes_tls=takes_tls)
        )
