"""The parts of a broker that deal with the other replicas of its group, assembled."""

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
from broker.slave.master_follower import MasterFollower
from broker.timer.schedule import DelayOffsets
from broker.timer.timer_service import TimerService
from sprocket.client.connection.name_servers import NameServers
from sprocket.common.clock import Clock
from sprocket.remoting.client import RemotingClient
from store.delivery import Delivery, OwnLog
from store.message_store import MessageStore


def delivery(config: LiveConfig, role: Role, store: MessageStore, client: RemotingClient, clock: Clock) -> Delivery:
    """Return where messages go that the broker itself makes: its own log, or for a slave another master."""
    if not role.is_slave:
        return OwnLog(store)
    broker = config.broker
    name_servers = NameServers(client, broker.name_servers) if broker.name_servers else None
    others = OtherMasters(name_servers, broker.broker_cluster_name, broker.broker_name, clock)
    return EscapeBridge(config, client, others)


@dataclass(frozen=True)
class GroupParts:
    """Members, HA addresses, group locks, and on a slave the watch over its master."""

    members: GroupMembers
    exchange: HaExchange
    locks: GroupLocks
    watch: MasterWatch | None

    @classmethod
    def of(
        cls,
        core: BrokerCore,
        registration: Registration,
        following: MasterFollower | None,
        revive: ReviveService,
    ) -> "GroupParts":
        """Return the parts of one broker; `following` is given on a slave."""
        members, exchange = GroupMembers(core, registration), HaExchange(core, registration)
        if isinstance(core.delivery, EscapeBridge):
            core.delivery.on_message.append(revive.note_escaped)
        watch = None if following is None else MasterWatch(core, members, following, exchange)
        return cls(members, exchange, GroupLocks(core, members), watch)

    @property
    def services(self) -> list[Service]:
        """The services, in the order of their start."""
        return [self.exchange, self.members, self.locks, *([] if self.watch is None else [self.watch])]

    def pre_online(
        self,
        core: BrokerCore,
        registration: Registration,
        services: ActiveServices,
        delay_offsets: DelayOffsets,
        timer: TimerService,
        replication: Replication,
    ) -> PreOnline:
        """Return the part that brings the broker online."""

        def slave_hosts() -> Iterable[str]:
            # Only slaves whose log was compared with this one: a connection alone proves nothing.
            following = (one for one in replication.listener.connections if one.link.requested_offset is not None)
            return [connection.peer[0] for connection in following]

        handover = HandoverFetch(core, delay_offsets, timer)
        return PreOnline(core, registration, services, self.members, self.exchange, handover, slave_hosts)
