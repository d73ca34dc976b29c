"""A slave's side of replication: it follows the master that name servers tell, or haMasterAddress.

Source: RocketMQ 5.3.3, `DefaultHAService.getRuntimeInfo`, `BrokerController.handleRegisterBrokerResult`,
`BrokerController.updateMasterHAServerAddr`.
"""

from typing import Final

from broker.core import BrokerCore
from broker.out.registration import Registration
from broker.periodic import Periodic
from broker.service import Service
from ha.follower import Follower
from ha.slave_link import SlaveRules
from sprocket.remoting.bodies.stats import HAClientRuntimeInfo, HARuntimeInfo
from sprocket.remoting.headers.namesrv import RegisterBrokerResponseHeader
from sprocket.remoting.tls.watch import ClientTls
from store.config.store_config import StoreConfig

_SAMPLE_S: Final = 1.0
_MIN_ADDRESS: Final = 6


class MasterFollower(Service):
    """Follower of the master, in the event loop's thread.  Once it exists, the store takes only the master's log."""

    def __init__(self, core: BrokerCore, registration: Registration, tls: ClientTls | None = None) -> None:
        self._core = core
        # TLS of this broker's connections to others, above all to its master.
        self.tls = tls
        self.log = core.store.replica()
        self.follower = Follower(slave_rules(core.config.store), self.log, core.clock, core.fail)
        core.config.on_update.append(lambda _: self.follower.configure(slave_rules(core.config.store)))
        self._own_address = registration
        # Address at which the master answers requests; empty while it is unknown.
        self.master_address = ""
        # Bytes received on this connection up to a second ago, and in that second.
        self._received = 0
        self._per_second = 0
        self._received_ms = self._sent_ms = core.clock.wall_ms()
        registration.on_registered.append(self._registered)
        registration.lacks_master = lambda: not self.master_address

    def load(self) -> None:
        """Begin at the end of the log, as recovery found it."""
        self.log.restart()

    def start(self) -> None:
        """Follow the master once its address is known."""
        self.follower.follow(self._fixed_address)
        self.follower.start()

    @property
    def _fixed_address(self) -> str:
        """The master's HA port in the configuration, or empty (`BrokerController.HA_ADDRESS_MIN_LENGTH`)."""
        address = self._core.config.store.ha_master_address
        return address if len(address) >= _MIN_ADDRESS else ""

    @property
    def is_fixed(self) -> bool:
        """Whether the configuration names the master's port for slaves."""
        return bool(self._fixed_address)

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

    def status(self) -> HARuntimeInfo:
        """Return the slave's progress in RocketMQ's form; only a slave that may act knows masterFlushOffset."""
        self._note_times()
        address = self.follower.master_address
        is_connected = self.follower.connection is not None
        client = HAClientRuntimeInfo(
            address or None, self._per_second, self.log.end_offset, self._received_ms, self._sent_ms, 0, is_connected
        )
        return HARuntimeInfo(master=False, ha_client_runtime_info=client)

    def stop(self) -> None:
        """Stop following."""
        self.follower.stop()

    def is_master_online(self) -> bool:
        """Return whether there is a connection to the master's log."""
        return self.follower.connection is not None

    def may_poll(self) -> bool:
        """Return whether to ask for the master's tables: only on a plain connection whose log was compared."""
        connection = self.follower.connection
        return connection is not None and connection.link.admits_polling

    def master_lost(self) -> None:
        """Follow no master, because no member of the group is one."""
        self.master_address = ""
        self.follower.follow(self._fixed_address)

    def master_found(self, address: str, ha_address: str) -> None:
        """Follow the master with these addresses for requests and for slaves; `ha_address` may be empty."""
        self.master_address = address
        if ha_address and not self._fixed_address:
            self.follower.follow(ha_address)

    def follows(self, address: str) -> bool:
        """Return whether the master at `address` is the one that is followed."""
        return self.master_address == address and bool(self.follower.master_address)

    def _registered(self, master: RegisterBrokerResponseHeader) -> None:
        if master.master_addr:
            self.master_address = master.master_addr
        is_known = bool(master.ha_server_addr) and master.ha_server_addr != self._own_address.ha_address
        if is_known and not self._fixed_address:
            self.follower.follow(master.ha_server_addr or "")


def slave_rules(config: StoreConfig) -> SlaveRules:
    """Return the rules of a slave's connection to its master."""
    return SlaveRules(
        heartbeat_s=config.ha_send_heartbeat_interval / 1000,
        housekeeping_s=config.ha_housekeeping_interval / 1000,
        segment_bytes=config.mapped_file_size_commit_log,
    )
