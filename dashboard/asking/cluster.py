"""Requests about a whole cluster."""

from dataclasses import dataclass

from sprocket.client.admin.admin_client import AdminClient
from sprocket.client.admin.at_once import AtOnce, Outcomes
from sprocket.client.admin.cluster_health import ClusterLook
from sprocket.client.admin.cluster_look import look_at
from sprocket.remoting.codes import RequestCode
from sprocket.remoting.command import ReceivedResponse


@dataclass(frozen=True)
class ClusterAnswers:
    """What name servers, by address, and brokers said."""

    name_servers: Outcomes[str, ReceivedResponse]
    look: ClusterLook


async def cluster_answers(admin: AdminClient, at_once: AtOnce) -> ClusterAnswers:
    """Ask all servers.  Raises AdminError if no name server answers."""
    info = await admin.cluster_info()
    name_servers: Outcomes[str, ReceivedResponse] = await at_once.each(
        admin.name_servers, lambda address: admin.ask(address, RequestCode.GET_BROKER_CLUSTER_INFO)
    )
    return ClusterAnswers(name_servers, await look_at(admin, at_once, info))
