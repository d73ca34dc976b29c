"""A slave's side of replication: it follows the master that name servers name, or haMasterAddress.

Source: RocketMQ 5.3.3, `BrokerController.handleRegisterBrokerResult`, `BrokerController.updateMasterHAServerAddr`.
"""

from broker.core import BrokerCore
from broker.registration import Registration
from broker.service import Service
from ha.follower import Follower
from ha.slave_link import SlaveRules
from remoting.headers.namesrv import RegisterBrokerResponseHeader
from store.config import StoreConfig


class Following(Service):
    """Lives in the event loop's thread.  From its making on, the store takes nothing but the master's log."""

    def __init__(self, core: BrokerCore, registration: Registration) -> None:
        self._core = core
        self.log = core.store.replica()
        self.follower = Follower(slave_rules(core.config.store), self.log, core.clock, core.fail)
        self._own_address = registration
        # Where the master answers requests; empty while it is unknown.
        self.master_address = ""
        registration.on_registered.append(self._registered)

    def load(self) -> None:
        """Begin at the log's end, as recovery found it."""
        self.log.restart()

    def start(self) -> None:
        """Follow, once it is known whom."""
        self.follower.start()

    def stop(self) -> None:
        """Follow no longer."""
        self.follower.stop()

    def is_master_online(self) -> bool:
        """Whether there is a connection to the master's log."""
        return self.follower.connection is not None

    def _registered(self, master: RegisterBrokerResponseHeader) -> None:
        if master.master_addr:
            self.master_address = master.master_addr
        if master.ha_server_addr and master.ha_server_addr != self._own_address.ha_address:
            self.follower.follow(master.ha_server_addr)


def slave_rules(config: StoreConfig) -> SlaveRules:
    """How a slave talks to its master."""
    return SlaveRules(
        heartbeat_s=config.ha_send_heartbeat_interval / 1000, housekeeping_s=config.ha_housekeeping_interval / 1000
    )
