"""Requests about namespaces, and their metrics."""

from collections import Counter
from collections.abc import Generator, Iterable
from typing import Final

from acl.visible_names import visible_names
from broker.core import BrokerCore
from broker.namespace.namespaces import brought_along
from broker.service import Service
from broker.topic.namespace_topics import check_template
from sprocket.common.next_turn import at_once
from sprocket.metrics.declared import Kind, Metric, Value
from sprocket.metrics.distribution import Labels
from sprocket.remoting.bodies.namespace import NamespacePolicy, NamespaceUse
from sprocket.remoting.codec.fastjson import dumps, in_steps, loads
from sprocket.remoting.codes import RequestCode
from sprocket.remoting.command import Request, Response
from sprocket.remoting.message.namespaces import SEPARATOR, namespace_of
from sprocket.remoting.routes import Action, NoHeader, Resource, Route, Steps

_STEP_NAMES: Final = 1024
_KINDS: Final = ("topics", "groups", "connections")


class NamespaceService(Service):
    """Service around the policies of namespaces.  Lives in the event loop's thread."""

    def __init__(self, core: BrokerCore) -> None:
        self._core = core
        self._table = core.namespace_table

    # A service

    def routes(self) -> list[Route]:
        """Return the routes of requests about namespaces."""
        code, cluster = RequestCode, Resource.CLUSTER
        return [
            Route(code.SET_NAMESPACE, NoHeader, self.set_namespace, cluster, Action.UPDATE),
            Route(code.DELETE_NAMESPACE, NoHeader, self.delete_namespace, cluster, Action.DELETE),
            Route(code.GET_NAMESPACES, NoHeader, self.namespaces, cluster, Action.LIST),
        ]

    def save(self) -> None:
        """Save the policies."""
        self._table.persist_changes()

    # Requests

    async def set_namespace(self, request: Request[NoHeader]) -> Response:
        """Set what a namespace may have; the response follows the write of the file."""
        policy = loads(bytes(request.body), NamespacePolicy)
        check_template(policy)
        self._table.set(policy)
        await self._table.save()
        return Response()

    async def delete_namespace(self, request: Request[NoHeader]) -> Response:
        """Delete what is set for the namespace in the body, but nothing in it; the response follows the write."""
        self._table.delete(bytes(request.body).decode("utf-8", "replace"))
        await self._table.save()
        return Response()

    def namespaces(self, request: Request[NoHeader]) -> Steps:
        """Return what each namespace has and may have, of those that the sender may see."""
        shows = visible_names(request)
        topics = yield from _counts(self._core.topics.by_name)
        groups = yield from _counts(self._core.groups.by_name)
        connections = self._core.consumers.connections
        names = sorted({*topics, *groups, *self._table.by_name})
        uses = (
            NamespaceUse(name, topics[name], groups[name], connections.count(name), self._table.by_name.get(name))
            for name in names
            if shows is None or shows(name + SEPARATOR)
        )
        listed = yield from in_steps(uses, list)
        return Response(body=dumps({"uses": listed}))

    # Metrics

    def exported_metrics(self) -> list[Metric]:
        """Return the metrics of the namespaces for which something is set."""

        def used() -> list[tuple[Labels, Value]]:
            if not self._table.by_name:
                return []
            topics, groups = at_once(_counts(self._core.topics.by_name)), at_once(_counts(self._core.groups.by_name))
            connections = self._core.consumers.connections
            return [
                ((name, kind), value)
                for name in self._table.by_name
                for kind, value in zip(_KINDS, (topics[name], groups[name], connections.count(name)), strict=True)
            ]

        def limits() -> list[tuple[Labels, Value]]:
            found: list[tuple[Labels, Value]] = []
            for name, policy in self._table.by_name.items():
                of_policy = (policy.max_topics, policy.max_groups, policy.max_connections)
                found += [((name, kind), value) for kind, value in zip(_KINDS, of_policy, strict=True) if value]
            return found

        labels = ("namespace", "kind")
        return [
            Metric("sprocket_namespace_used", Kind.GAUGE, "topics, groups, connections of a namespace", used, labels),
            Metric("sprocket_namespace_limit", Kind.GAUGE, "how many of these a namespace may have", limits, labels),
        ]


def _counts(known: Iterable[str]) -> Generator[None, None, Counter[str]]:
    """Return how many of some names are in each namespace."""
    found: Counter[str] = Counter()
    for number, name in enumerate(list(known), 1):
        namespace = "" if brought_along(name) else namespace_of(name)
        if namespace:
            found[namespace] += 1
        if not number % _STEP_NAMES:
            yield
    return found
