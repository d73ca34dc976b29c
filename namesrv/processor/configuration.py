"""Requests about the KV configuration and about the name server's own configuration.

Source: RocketMQ 5.3.3, `DefaultRequestProcessor`.
"""

import logging

import msgspec

from namesrv.config import NamesrvConfig
from namesrv.kv_config import KVConfig
from sprocket.common.config.live_settings import LiveSettings
from sprocket.common.errors import RequestError
from sprocket.remoting.bodies.stats import KVTable
from sprocket.remoting.codes import RequestCode, ResponseCode
from sprocket.remoting.command import Request, Response
from sprocket.remoting.headers.namesrv import (
    DeleteKVConfigRequestHeader,
    GetKVConfigRequestHeader,
    GetKVConfigResponseHeader,
    GetKVListByNamespaceRequestHeader,
    PutKVConfigRequestHeader,
)
from sprocket.remoting.routes import Action, Resource, Route
from sprocket.remoting.serving.own_configuration import OwnConfiguration

logger = logging.getLogger(__name__)


class ConfigurationProcessor:
    """Handler of requests for both configurations."""

    def __init__(self, kv_config: KVConfig, settings: LiveSettings[NamesrvConfig]) -> None:
        self._kv_config = kv_config
        self._own = OwnConfiguration(settings, logger)

    def routes(self) -> list[Route]:
        """Return the routes of this processor."""
        code, cluster = RequestCode, Resource.CLUSTER
        get, update = Action.GET, Action.UPDATE
        return [
            Route(code.PUT_KV_CONFIG, PutKVConfigRequestHeader, self.put, cluster, update),
            Route(code.GET_KV_CONFIG, GetKVConfigRequestHeader, self.get, cluster, get),
            Route(code.DELETE_KV_CONFIG, DeleteKVConfigRequestHeader, self.delete, cluster, update),
            Route(code.GET_KVLIST_BY_NAMESPACE, GetKVListByNamespaceRequestHeader, self.namespace, cluster, get),
            *self._own.routes(code.GET_NAMESRV_CONFIG, code.UPDATE_NAMESRV_CONFIG),
        ]

    async def put(self, request: Request[PutKVConfigRequestHeader]) -> Response:
        """Set a value.  Respond when it is in the file."""
        header = request.header
        self._kv_config.put(header.namespace, header.key, header.value)
        await self._kv_config.save()
        return Response()

    def get(self, request: Request[GetKVConfigRequestHeader]) -> Response:
        """Return a value."""
        namespace, key = request.header.namespace, request.header.key
        value = self._kv_config.get(namespace, key)
        if value is None:
            remark = f"No config item, Namespace: {namespace} Key: {key}"
            raise RequestError(ResponseCode.QUERY_NOT_FOUND, remark)
        return Response(header=GetKVConfigResponseHeader(value=value))

    async def delete(self, request: Request[DeleteKVConfigRequestHeader]) -> Response:
        """Remove a value.  Respond when it is gone from the file."""
        self._kv_config.delete(request.header.namespace, request.header.key)
        await self._kv_config.save()
        return Response()

    def namespace(self, request: Request[GetKVListByNamespaceRequestHeader]) -> Response:
        """Return the keys and values of a namespace."""
        table = self._kv_config.namespace(request.header.namespace)
        if table is None:
            raise RequestError(ResponseCode.QUERY_NOT_FOUND, f"No config item, Namespace: {request.header.namespace}")
        return Response(body=msgspec.json.encode(KVTable(table)))
