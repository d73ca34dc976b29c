"""Part of the administration client: namespaces at single brokers, given by address.  Not in RocketMQ."""

from sprocket.client.admin.admin_requests import AdminRequests
from sprocket.remoting.bodies.namespace import NamespacePolicy, NamespaceUse, NamespaceUsesBody
from sprocket.remoting.codec.fastjson import dumps
from sprocket.remoting.codes import RequestCode


class NamespaceRequests(AdminRequests):
    """What `AdminClient` asks about namespaces.  Every method raises AdminError."""

    async def set_namespace(self, broker: str, policy: NamespacePolicy) -> None:
        """Set what a namespace may have, in place of what was set, at a master; its slaves follow."""
        await self.ask(broker, RequestCode.SET_NAMESPACE, body=dumps(policy))

    async def delete_namespace(self, broker: str, name: str) -> None:
        """Delete what is set for a namespace, but nothing in it, at a master; its slaves follow."""
        await self.ask(broker, RequestCode.DELETE_NAMESPACE, body=name.encode())

    async def namespaces(self, broker: str) -> dict[str, NamespaceUse]:
        """Return what each namespace has at a broker, and may have; those that the caller may list."""
        uses = (await self.ask_body(broker, RequestCode.GET_NAMESPACES, NamespaceUsesBody)).uses
        return {use.name: use for use in uses}
