"""Requests about the KV configuration and about the name server's own configuration.

Source: RocketMQ 5.3.3, `DefaultRequestProcessor`.  RocketMQ lists the keys that must not be changed; here the mutable
keys are declared.
"""

import logging
from typing import Any, Final

import msgspec

from namesrv.config import NamesrvConfig
from namesrv.kv_config import KVConfig
from sprocket.common.config.configuration import update_entries
from sprocket.common.config.live_settings import LiveSettings
from sprocket.common.errors import ConfigError, RequestError
from sprocket.common.logs.peer_lines import peer_lines
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
from sprocket.remoting.routes import Action, NoHeader, Resource, Route

logger = logging.getLogger(__name__)

# Refused keys that a response names.
_MAX_NAMED_KEYS: Final = 10


class ConfigurationProcessor:
    """Handler of requests for both configurations."""

    def __init__(self, kv_config: KVConfig, settings: LiveSettings[NamesrvConfig]) -> None:
        self._kv_config = kv_config
        self._settings = settings

    def routes(self) -> list[Route]:
        """Return the routes of this processor."""
        code, cluster = RequestCode, Resource.CLUSTER
        get, update = Action.GET, Action.UPDATE
        return [
            Route(code.PUT_KV_CONFIG, PutKVConfigRequestHeader, self.put, cluster, update),
            Route(code.GET_KV_CONFIG, GetKVConfigRequestHeader, self.get, cluster, get),
            Route(code.DELETE_KV_CONFIG, DeleteKVConfigRequestHeader, self.delete, cluster, update),
            Route(code.GET_KVLIST_BY_NAMESPACE, GetKVListByNamespaceRequestHeader, self.namespace, cluster, get),
            Route(code.UPDATE_NAMESRV_CONFIG, NoHeader, self.update_own, cluster, update),
            Route(code.GET_NAMESRV_CONFIG, NoHeader, self.get_own, cluster, get),
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

    def get_own(self, request: Request[Any]) -> Response:
        """Return the name server's configuration as a properties file."""
        return Response(body=self._settings.text().encode())

    def update_own(self, request: Request[Any]) -> Response:
        """Change mutable keys of the name server's configuration."""
        allowed = self._settings.mutable_keys()
        try:
            refused = sorted({entry.key for entry in update_entries(request.body)} - set(allowed))
            if refused:
                named = ", ".join(refused[:_MAX_NAMED_KEYS])
                remark = f"Can not update {named}: set it in the server's file and restart the server"
                raise RequestError(ResponseCode.NO_PERMISSION, remark)
            changed = self._settings.update(request.body)
        except ConfigError as error:
            raise RequestError(ResponseCode.INVALID_PARAMETER, str(error)) from None
        note = self._settings.note
        if changed:
            peer_lines.info(
                logger, request.channel.peer, "event=config_updated peer=%s:%s changed=%s note=%r",
                *request.channel.peer, changed, note or "",
            )  # fmt: skip
        return Response(remark=note)
