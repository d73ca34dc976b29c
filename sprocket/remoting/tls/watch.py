"""The TLS of a server and of a client: a context for each new connection, made anew when its files change.

What was made last holds until all files are sound again; connections that are open keep what they began with.
Source: RocketMQ 5.3.3, `BrokerController.initialize` (`FileWatchService`), which looks at the server's files alone.
"""

import logging
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Final

from sprocket.common.errors import ConfigError
from sprocket.common.properties import parse
from sprocket.remoting.tls.material import client_context, file_state, files_of, read_file, server_context
from sprocket.remoting.tls.settings import CONFIG_FILE, DISABLED, ENFORCING, TlsSettings

logger = logging.getLogger(__name__)

_CONFIG_KEY: Final = "tls.config.file"
_State = dict[Path, tuple[int, int, int]]


class _Watched:
    """Settings, and the context that is made of them and of the files that they name."""

    def __init__(self, given: TlsSettings, make: Callable[[TlsSettings], ssl.SSLContext], *, server: bool) -> None:
        self._given = given
        self._make = make
        self._server = server
        self.settings = given
        self._context: ssl.SSLContext | None = None
        self._state: _State = {}

    def read(self) -> TlsSettings:
        """What is set, now.  Raises ConfigError."""
        settings = _with_file(self._given)
        if self._server:
            settings.check_server()
        else:
            settings.check_client()
        self.settings = settings
        return settings

    def load(self) -> ssl.SSLContext:
        """Make the context.  Raises ConfigError that names the key, the file and what is wrong."""
        settings = self.read()
        # Before it is read: what changes meanwhile is read again.
        self._state = self._look()
        self._context = self._make(settings)
        return self._context

    def reload(self) -> None:
        """Make it again if a file has changed; what is broken is logged once, and changes nothing."""
        if self._context is None or (state := self._look()) == self._state:
            return
        self._state = state
        side = "server" if self._server else "client"
        try:
            self.load()
        except ConfigError as error:
            logger.error("event=tls_kept side=%s reason=%r", side, str(error))
            return
        logger.info("event=tls_reloaded side=%s", side)

    def _look(self) -> _State:
        return {path: file_state(path) for path in files_of(self.settings, server=self._server)}

    @property
    def context(self) -> ssl.SSLContext:
        """What holds now; made if it never was.  Raises ConfigError then."""
        return self._context or self.load()


class ServerTls:
    """What a listening port shows.

    `reload` is called from time to time.  One of these may serve several ports.
    """

    def __init__(self, settings: TlsSettings) -> None:
        self._watched = _Watched(settings, server_context, server=True)

    @property
    def mode(self) -> str:
        """tls.server.mode."""
        return self._watched.settings.server_mode

    @property
    def is_enforcing(self) -> bool:
        """Whether plain connections are refused."""
        return self.mode == ENFORCING

    def start(self) -> None:
        """Read the files; nothing if there is to be no TLS.  The test mode's certificate is made for who asks first.

        Raises ConfigError that names the key, the file and what is wrong.
        """
        if self.mode == DISABLED:
            return
        settings = self._watched.read()
        if not settings.is_test:
            self._watched.load()
        if settings.is_test and (self.mode == ENFORCING or settings.server_cert_path is not None):
            logger.warning("event=tls_test_mode note=%r", "clients cannot tell this server from a stranger")
        logger.info(
            "event=tls mode=%s test_mode=%s certificate=%s client_certificates=%s checked=%s",
            self.mode, settings.is_test, settings.server_cert_path or "-", settings.server_need_client_auth,
            settings.checks_clients,
        )  # fmt: skip

    def reload(self) -> None:
        """See files change."""
        self._watched.reload()

    def context(self) -> ssl.SSLContext:
        """For a new connection.  Raises ConfigError."""
        return self._watched.context


class ClientTls:
    """What the connections of a client are made with."""

    def __init__(self, settings: TlsSettings) -> None:
        self._watched = _Watched(settings, client_context, server=False)

    @classmethod
    def of(cls, settings: TlsSettings | None) -> "ClientTls | None":
        """None if connections to others are to be plain."""
        return cls(settings) if settings is not None and settings.is_client else None

    def start(self) -> None:
        """Read the files.  Raises ConfigError that names the key, the file and what is wrong."""
        self._watched.load()

    def context(self) -> ssl.SSLContext:
        """For a new connection.  Raises ConfigError if there never was one."""
        self._watched.reload()
        return self._watched.context


def _with_file(given: TlsSettings) -> TlsSettings:
    """`given`, and what the file of tls.config.file says; only the default one may be missing.  Raises ConfigError."""
    path = given.config_file
    if path is None or (path == CONFIG_FILE and not path.is_file()):
        return given
    settings, notices = given.with_file(parse(read_file(_CONFIG_KEY, path), str(path)), str(path))
    for notice in notices:
        logger.warning("event=tls_key_ignored detail=%r", notice)
    return settings
