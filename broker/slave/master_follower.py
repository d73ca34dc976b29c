"""A slave's side of replication: it follows the master that name servers tell, or haMasterAddress.

Source: RocketMQ 5.3.3, `DefaultHAService.getRuntimeInfo`, `BrokerController.handleRegisterBrokerResult`,
`BrokerController.updateMasterHAServerAddr`.
"""

from typing import Final

from broker.core import BrokerCore
from broker.out.master_address import MasterAddress
from broker.out.registration import Registration
from broker.periodic import Periodic
from broker.service import Service
from broker.slave.slave_rules import fixed_ha_address, slave_rules
from ha.follower import RETRY_S, Follower, Links
from sprocket.common.errors import StoreError
from sprocket.remoting.bodies.stats import HAClientRuntimeInfo, HARuntimeInfo
from sprocket.remoting.headers.namesrv import RegisterBrokerResponseHeader
from store.replica.replica_log import StoreReplicaLog
from store.tier.partial_restore import refuse_slave

_SAMPLE_S = 1.0
# A master that was just elected may have to become one first, and its senders wait for its slaves.
_APPOINTED_RETRY_S: Final = 0.2


class MasterFollower(Service):
    """Follower of the master, in the event loop's thread.  `links` speak to the master, for its copy in `log`."""

    def __init__(
        self, core: BrokerCore, registration: Registration, master: MasterAddress, log: StoreReplicaLog, links: Links
    ) -> None:
        self._core = core
        self._master = master
        self._log = log
        # Controllers decide whom to follow, and name servers only tell clients.
        self._is_appointed = core.config.broker.enable_controller_mode
        retry_s = _APPOINTED_RETRY_S if self._is_appointed else RETRY_S
        self.follower = Follower(links, log, core.clock, core.fail, retry_s=retry_s)
        # Bytes received on this connection up to a second ago, and in that second.
        self._received = 0
        self._per_second = 0
        self._received_ms = self._sent_ms = core.clock.wall_ms()
        registration.on_registered.append(self._registered)

    def configured(self, changed: dict[str, str]) -> None:
        """Apply changed intervals."""
        self.follower.configure(slave_rules(self._core.config.store))

    def load(self) -> None:
        """Begin at the end of the log, as recovery found it.  Raises `StoreError` for a log that is no copy.

        Controllers may still elect this broker, so under them it is refused when it has a master to follow.
        """
        if not self._is_appointed:
            self._refuse_partial()
        self._log.restart()

    def _refuse_partial(self) -> None:
        core = self._core
        refuse_slave(core.config.store.store_path_root_dir, core.store.first_physical_offset)

    def start(self) -> None:
        """Follow the master once its address is known."""
        self.follower.follow(self._fixed_address)
        self.follower.start()

    @property
    def _fixed_address(self) -> str:
        return fixed_ha_address(self._core.config.store)

    def periodic(self) -> list[Periodic]:
        """Measure the bytes received per second."""
        return [Periodic("following", _SAMPLE_S, self._sample)]

    def _sample(self) -> None:
        connection = self.follower.connection
        received = 0 if connection is None else connection.link.received_bytes
        self._per_second = max(0, received - self._received)
        self._received = received
        self._note_times()

    def _note_times(self) -> None:
        """Note the wall-clock times of the last bytes from and to the master."""
        connection, clock = self.follower.connection, self._core.clock
        if connection is not None:
            now_ms, now = clock.wall_ms(), clock.monotonic()
            self._received_ms = now_ms - round((now - connection.link.read_at) * 1000)
            self._sent_ms = now_ms - round((now - connection.link.wrote_at) * 1000)

    def status(self, master_flush_offset: int) -> HARuntimeInfo:
        """Return the slave's progress in RocketMQ's form, with the flushed offset that the master reported."""
        self._note_times()
        address = self.follower.master_address
        is_connected = self.follower.connection is not None
        client = HAClientRuntimeInfo(
            address or None, self._per_second, self._log.end_offset, self._received_ms, self._sent_ms,
            master_flush_offset, is_connected,
        )  # fmt: skip
        return HARuntimeInfo(master=False, ha_client_runtime_info=client)

    def stop(self) -> None:
        """Stop following."""
        self.follower.stop()

    def leave(self) -> None:
        """Erase what was received of a record that did not arrive whole: the open store goes to the next role."""
        self._log.lead()

    def is_master_online(self) -> bool:
        """Return whether there is a connection to the master's log."""
        return self.follower.connection is not None

    def may_poll(self) -> bool:
        """Return whether to ask for the master's tables: only on a plain connection whose log was compared."""
        connection = self.follower.connection
        return connection is not None and connection.link.admits_polling

    def master_lost(self) -> None:
        """Follow no master, because no member of the group is one."""
        self._master.note("")
        self.follower.follow(self._fixed_address)

    def master_found(self, address: str, ha_address: str) -> None:
        """Follow the master with these addresses for requests and for slaves; `ha_address` may be empty."""
        try:
            self._refuse_partial()
        except StoreError as error:
            self._core.fail(error)
            return
        self._master.note(address)
        if ha_address and not self._fixed_address:
            self.follower.follow(ha_address)

    def follows(self, address: str) -> bool:
        """Return whether the master at `address` is the one that is followed."""
        return str(self._master) == address and bool(self.follower.master_address)

    def _registered(self, master: RegisterBrokerResponseHeader) -> None:
        if self._is_appointed:
            return
        if master.master_addr:
            self._master.note(master.master_addr)
        is_known = bool(master.ha_server_addr) and master.ha_server_addr != self._core.config.broker.ha_address
        if is_known and not self._fixed_address:
            self.follower.follow(master.ha_server_addr or "")
