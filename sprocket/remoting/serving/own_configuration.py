"""Requests for the configuration of a server without a store: a name server or a controller.

Source: RocketMQ 5.3.3, `DefaultRequestProcessor`, `ControllerRequestProcessor`.  RocketMQ lists the keys that must not
be changed; here the mutable keys are declared.
"""

from logging import Logger
from typing import Any, Final

from sprocket.common.config.configuration import update_entries
from sprocket.common.config.live_settings import LiveSettings
from sprocket.common.errors import ConfigError, RequestError
from sprocket.common.logs.peer_lines import peer_lines
from sprocket.remoting.codes import RequestCode, ResponseCode
from sprocket.remoting.command import Request, Response
from sprocket.remoting.routes import Action, NoHeader, Resource, Route

# Refused keys that a response names.
_MAX_NAMED_KEYS: Final = 10


class OwnConfiguration:
    """Handler of requests for `settings`; it writes changes to `logger`."""

    def __init__(self, settings: LiveSettings[Any], logger: Logger) -> None:
        self._settings = settings
        self._logger = logger

    def routes(self, get: RequestCode, update: RequestCode) -> list[Route]:
        """Return the routes of these two codes."""
        return [
            Route(update, NoHeader, self._update, Resource.CLUSTER, Action.UPDATE),
            Route(get, NoHeader, self._get, Resource.CLUSTER, Action.GET),
        ]

    def _get(self, request: Request[Any]) -> Response:
        """Return the configuration as a properties file."""
        return Response(body=self._settings.text().encode())

    def _update(self, request: Request[Any]) -> Response:
        """Change mutable keys."""
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
        note, peer = self._settings.note, request.channel.peer
        if changed:
            peer_lines.info(
                self._logger, peer, "event=config_updated peer=%s:%s changed=%s note=%r", *peer, changed, note or ""
            )
        return Response(remark=note)
