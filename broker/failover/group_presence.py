"""The parts of a broker that live with the others of its group, put together."""

from collections.abc import Iterable
from dataclasses import dataclass

from broker.config.live_config import LiveConfig
from broker.core import BrokerCore
from broker.failover.active_services import ActiveServices
from broker.failover.escape_bridge import EscapeBridge
from broker.failover.group_members import GroupMembers
from broker.failover.handover_fetch import HandoverFetch
from broker.failover.master_watch import MasterWatch
from broker.failover.other_masters import OtherMasters
from broker.failover.pre_online import PreOnline
from broker.out.registration import Registration
from broker.pop.revive.revive_service import ReviveService
from broker.processor.lock_batch import GroupLocks
from broker.replication.ha_exchange import HaExchange
from broker.replication.replication import Replication
from broker.role import Role
from broker.service import Service
from broker.slave.following import Following
from broker.timer.schedule import DelayOffsets
from broker.timer.timer_service import TimerService
from sprocket.client.connection.name_servers import NameServers
from sprocket.common.clock import Clock
from sprocket.remoting.client import RemotingClient
from store.delivery import Delivery, OwnLog
from store.message_store import MessageStore


def delivery(config: LiveConfig, role: Role, store: MessageStore, client: RemotingClient, clock: Clock) -> Delivery:
    """Where messages of the broker's own making go: a slave's log takes none."""
    if not role.is_slave:
        return OwnLog(store)
    broker = config.broker
    name_servers = NameServers(client, broker.name_servers) if broker.name_servers else None
    others = OtherMasters(name_servers, broker.broker_cluster_name, broker.broker_name, clock)
    return EscapeBridge(config, client, others)


@dataclass(frozen=True)
class GroupPresence:
    """Members, addresses, and for a slave its watch over the master."""

    members: GroupMembers
    exchange: HaExchange
    locks: GroupLocks
    watch: MasterWatch | None

    @classmethod
    def of(
        cls,
        core: BrokerCore,
        registration: Registration,
        following: Following | None,
        revive: ReviveService,
    ) -> "GroupPresence":
        """Those of one broker; `following` is a slave's."""
        members, exchange = GroupMembers(core, registration), HaExchange(core, registration)
        if isinstance(core.delivery, EscapeBridge):
            core.delivery.on_message.append(revive.hear_of)
        watch = None if following is None else MasterWatch(core, members, following, exchange)
        return cls(members, exchange, GroupLocks(core, members), watch)

    @property
    def services(self) -> list[Service]:
        """In the order of their start."""
        return [self.exchange, self.members, self.locks, *([] if self.watch is None else [self.watch])]

    def pre_online(
        self,
        core: BrokerCore,
        registration: Registration,
        work: ActiveServices,
        delay_offsets: DelayOffsets,
        timer: TimerService,
        replication: Replication,
    ) -> PreOnline:
        """What brings the broker online."""

        def slave_hosts() -> Iterable[str]:
            # Not merely connected: what a slave did counts here only if its log was compared with this one.
            following = (one for one in replication.listener.connections if one.link.requested_offset is not None)
            return [connection.peer[0] for connection in following]

        handover = HandoverFetch(core, delay_offsets, timer)
        return PreOnline(core, registration, work, self.members, self.exchange, handover, slave_hosts)
