"""Names of topics and groups: offered in forms, and for names that are not known.

A visitor without the right to list them gets none; the forms work without.
"""

import asyncio
from collections.abc import Iterable
from typing import Final

from dashboard.asking.topics import topic_names
from dashboard.views.refusals import nearest
from dashboard.views.topics import kind_of
from sprocket.client.admin.admin_client import AdminClient, AdminError
from sprocket.client.admin.at_once import AtOnce, answered
from sprocket.remoting.bodies.route import addresses_of

# More would make a page slow; browsers search in what they got.
_MAX_OFFERED: Final = 500


async def offered_topics(admin: AdminClient) -> list[str]:
    """Return topics of applications."""
    try:
        names, own = await topic_names(admin)
    except AdminError:
        return []
    return [name for name in names if kind_of(name, own) == "user"][:_MAX_OFFERED]


async def offered_groups(admin: AdminClient, at_once: AtOnce) -> list[str]:
    """Return consumer groups of applications."""
    return sorted(await _groups(admin, at_once))[:_MAX_OFFERED]


async def near_topics(admin: AdminClient, topic: str) -> list[str]:
    """Return the topics whose names are most like `topic`."""
    try:
        names = await admin.topic_list()
    except AdminError:
        return []
    return await _nearest(topic, names)


async def near_groups(admin: AdminClient, at_once: AtOnce, group: str) -> list[str]:
    """Return the groups whose names are most like `group`; its own is the only one if there is such a group."""
    names = await _groups(admin, at_once)
    return [group] if group in names else await _nearest(group, names)


async def _groups(admin: AdminClient, at_once: AtOnce) -> set[str]:
    try:
        brokers = addresses_of((await admin.cluster_info()).broker_addr_table.values())
    except AdminError:
        return set()
    tables = await at_once.each(brokers, lambda name: admin.user_consumer_groups(brokers[name]))
    return {name for table in answered(tables).values() for name in table.subscription_group_table}


async def _nearest(name: str, names: Iterable[str]) -> list[str]:
    # With ten thousands of names this takes a good part of a second.
    return await asyncio.to_thread(nearest, name, names)
