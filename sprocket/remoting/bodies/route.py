"""Routes: where the queues of a topic are.

Source: RocketMQ 5.3.3, `TopicRouteData`, `QueueData`, `BrokerData`, `ClusterInfo`, `BrokerMemberGroup`.
"""

from collections.abc import Iterable

import msgspec

from sprocket.common import limits
from sprocket.common.errors import ProtocolError
from sprocket.remoting.bodies.topic_queue_mapping import TopicQueueMappingInfo
from sprocket.remoting.codec.fastjson import loads

MASTER_ID = 0


class QueueData(msgspec.Struct, rename="camel"):
    """How many queues of a topic a broker group has."""

    broker_name: str
    read_queue_nums: int = 0
    write_queue_nums: int = 0
    perm: int = 0
    topic_sys_flag: int = 0


class BrokerData(msgspec.Struct, rename="camel"):
    """One broker group: its members' addresses by broker id; 0 is the master."""

    cluster: str | None
    broker_name: str
    broker_addrs: dict[int, str] = {}
    zone_name: str | None = None
    enable_acting_master: bool = False

    def master_or_slave(self) -> str | None:
        """Return the master's address, else any member's."""
        master = self.broker_addrs.get(MASTER_ID)
        return master if master is not None else next(iter(self.broker_addrs.values()), None)


def addresses_of(brokers: Iterable[BrokerData]) -> dict[str, str]:
    """Return the address of each broker group by name, sorted: of its master, else of a slave."""
    found = ((broker.broker_name, broker.master_or_slave()) for broker in brokers)
    return dict(sorted((name, address) for name, address in found if address is not None))


class TopicRouteData(msgspec.Struct, rename="camel"):
    """Answer to GET_ROUTEINFO_BY_TOPIC."""

    order_topic_conf: str | None = None
    queue_datas: list[QueueData] = []
    broker_datas: list[BrokerData] = []
    filter_server_table: dict[str, list[str]] = {}
    topic_queue_mapping_by_broker: dict[str, TopicQueueMappingInfo] | None = None


def has_possible_queues(queues: QueueData) -> bool:
    """Return whether a broker can have so many queues of one topic."""
    limit = limits.MAX_TOPIC_QUEUES
    return 0 <= queues.read_queue_nums <= limit and 0 <= queues.write_queue_nums <= limit


def read_route(body: bytes) -> TopicRouteData:
    """Return the body of an answer to GET_ROUTEINFO_BY_TOPIC.

    Raises ProtocolError, also for numbers of queues and addresses that nobody may list.
    """
    data = loads(body, TopicRouteData)
    for queues in data.queue_datas:
        if not has_possible_queues(queues):
            numbers = f"{queues.read_queue_nums} read and {queues.write_queue_nums} write queues"
            raise ProtocolError("body", f"{queues.broker_name} has {numbers}, the limit is {limits.MAX_TOPIC_QUEUES}")
    members = {group.broker_name: len(group.broker_addrs) for group in data.broker_datas}
    if (count := sum(members.values())) > limits.MAX_ROUTE_ADDRESSES:
        raise ProtocolError("body", f"{count} addresses of brokers, the limit is {limits.MAX_ROUTE_ADDRESSES}")
    counts = (
        max(each.read_queue_nums, each.write_queue_nums) * max(members.get(each.broker_name, 0), 1)
        for each in data.queue_datas
    )
    if (count := sum(counts)) > limits.MAX_ROUTE_QUEUES:
        raise ProtocolError("body", f"{count} queues on all brokers, the limit is {limits.MAX_ROUTE_QUEUES}")
    mappings = (data.topic_queue_mapping_by_broker or {}).values()
    if (count := max((each.total_queues for each in mappings), default=0)) > limits.MAX_TOPIC_QUEUES:
        raise ProtocolError("body", f"{count} logical queues, the limit is {limits.MAX_TOPIC_QUEUES}")
    return data


class ClusterInfo(msgspec.Struct, rename="camel"):
    """Answer to GET_BROKER_CLUSTER_INFO."""

    broker_addr_table: dict[str, BrokerData] = {}
    cluster_addr_table: dict[str, list[str]] = {}

    def masters(self) -> dict[str, str]:
        """Return the address of each broker group's master by name, sorted; groups without a master are left out."""
        return {
            name: group.broker_addrs[MASTER_ID]
            for name, group in sorted(self.broker_addr_table.items())
            if MASTER_ID in group.broker_addrs
        }


class BrokerMemberGroup(msgspec.Struct, rename="camel"):
    """Members of a broker group."""

    cluster: str
    broker_name: str
    broker_addrs: dict[int, str] = {}


class GetBrokerMemberGroupResponseBody(msgspec.Struct, rename="camel"):
    """Answer to GET_BROKER_MEMBER_GROUP."""

    broker_member_group: BrokerMemberGroup | None = None
