"""Requests that `cluster_health.judge` needs: to all brokers, and to the controllers that their configurations name."""

from collections.abc import Mapping
from typing import Final

from sprocket.client.admin.admin_client import AdminClient, AdminError
from sprocket.client.admin.at_once import AtOnce, answered
from sprocket.client.admin.cluster_health import ClusterLook
from sprocket.client.admin.controller_admin import ControllerAdmin
from sprocket.remoting.bodies.controller import ReplicasInfo
from sprocket.remoting.bodies.route import ClusterInfo

# Controllers are groups of at most so many; a broker could name any number.
_MAX_CONTROLLERS: Final = 15


async def look_at(admin: AdminClient, at_once: AtOnce, info: ClusterInfo) -> ClusterLook:
    """Ask the brokers of `info`, then their controllers.  A server that does not answer is an outcome, no error."""
    brokers = [address for data in info.broker_addr_table.values() for address in data.broker_addrs.values()]
    runtime = await at_once.each(brokers, admin.broker_runtime_info)
    there = answered(runtime)
    replication = await at_once.each(there, admin.ha_status)
    # The members of a group have the same controllers, so one of them is asked.
    members = {
        name: [address for _, address in sorted(data.broker_addrs.items()) if address in there]
        for name, data in info.broker_addr_table.items()
    }
    names = [name for name, addresses in members.items() if addresses]
    configs = answered(await at_once.each(names, lambda name: admin.broker_config(members[name][0])))
    under = {
        name: tuple(dict.fromkeys(filter(None, keys.get("controllerAddr", "").split(";"))))[:_MAX_CONTROLLERS]
        for name, keys in configs.items()
        if keys.get("enableControllerMode") == "true"
    }
    control = ControllerAdmin(admin)
    controllers = await at_once.each((address for one in under.values() for address in one), control.metadata)

    async def known_to(addresses: tuple[str, ...]) -> Mapping[str, ReplicasInfo]:
        speaker = next((one for one in addresses if not isinstance(controllers[one], AdminError)), None)
        return {} if speaker is None else await control.sync_state(speaker, [n for n in under if under[n] == addresses])

    known = answered(await at_once.each(under.values(), known_to)).values()
    replicas = {name: found for one in known for name, found in one.items()}
    return ClusterLook(info, runtime, replication, controllers, frozenset(under), replicas)
