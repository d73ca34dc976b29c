"""Names of topics and groups in requests of clients: the two parts of gRPC's Resource as the one name of brokers.

RocketMQ's proxies ignore the namespace in requests, and send it in answers.
"""

from proxy.status import Refusal
from sprocket.grpc_wire import messaging_pb2 as wire
from sprocket.remoting.message.namespaces import namespace_problem, with_namespace


def full_name(resource: wire.Resource) -> str:
    """Return the name by which brokers know a topic or group.  Raises Refusal for an illegal namespace."""
    namespace = resource.resource_namespace
    if not namespace:
        return resource.name
    problem = namespace_problem(namespace)
    if problem is not None:
        raise Refusal(wire.BAD_REQUEST, problem)
    return with_namespace(namespace, resource.name)
