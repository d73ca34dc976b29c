"""Requests about consumer groups."""

from dataclasses import dataclass
from typing import Final

from dashboard.asking.topics import Offsets
from sprocket.client.admin.admin_client import AdminClient, AdminError
from sprocket.client.admin.at_once import AtOnce, Outcomes, answered, check_rights
from sprocket.client.admin.group_admin import GroupAdmin
from sprocket.remoting.bodies.client import ConsumerConnection
from sprocket.remoting.bodies.consumption import ConsumerRunningInfo
from sprocket.remoting.bodies.group import SubscriptionGroupTable
from sprocket.remoting.bodies.route import addresses_of

# Consumers that are asked about their work; of larger groups the others are listed without.
MAX_ASKED_CLIENTS: Final = 50


@dataclass(frozen=True)
class GroupTables:
    """What brokers said of all groups, by broker name."""

    groups: Outcomes[str, SubscriptionGroupTable]
    offsets: Outcomes[str, dict[str, Offsets]]


@dataclass(frozen=True)
class GroupAnswers:
    """What brokers and consumers said of one group; running infos are by client id."""

    groups: Outcomes[str, SubscriptionGroupTable]
    offsets: Outcomes[str, Offsets]
    members: Outcomes[str, ConsumerConnection]
    running: Outcomes[str, ConsumerRunningInfo[str]]


async def group_tables(admin: AdminClient, at_once: AtOnce) -> GroupTables:
    """Ask all brokers.  Raises AdminError if no name server answers."""
    brokers = addresses_of((await admin.cluster_info()).broker_addr_table.values())
    asked = GroupAdmin(admin)
    groups = await at_once.each(brokers, lambda name: admin.user_consumer_groups(brokers[name]))
    check_rights(groups)
    return GroupTables(groups, await at_once.each(brokers, lambda name: asked.offsets_of_all(brokers[name])))


async def group_answers(admin: AdminClient, at_once: AtOnce, group: str) -> GroupAnswers:
    """Ask all brokers, then the group's consumers.  Raises AdminError if no name server answers."""
    brokers = addresses_of((await admin.cluster_info()).broker_addr_table.values())
    groups = GroupAdmin(admin)
    offsets = await at_once.each(brokers, lambda name: groups.offsets(brokers[name], group))
    check_rights(offsets)
    members = await at_once.each(brokers, lambda name: groups.consumers(group, brokers[name]))
    places = {
        client.client_id: brokers[name]
        for name, connection in answered(members).items()
        for client in connection.connection_set
    }
    running = await at_once.each(
        list(places)[:MAX_ASKED_CLIENTS], lambda client: admin.running_info(group, client, broker=places[client])
    )
    return GroupAnswers(
        await at_once.each(brokers, lambda name: admin.consumer_groups(brokers[name])), offsets, members, running
    )


def silent(outcomes: Outcomes[str, object]) -> list[tuple[str, str]]:
    """Return the brokers that did not answer at all, and why; a refusal is an answer."""
    return [(name, str(one)) for name, one in outcomes.items() if isinstance(one, AdminError) and one.code is None]
