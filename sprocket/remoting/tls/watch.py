"""TLS contexts for new connections of a server or a client, reloaded when their files change.

The last valid context is kept until all files are valid again; open connections keep theirs.
Source: RocketMQ 5.3.3, `BrokerController.initialize` (`FileWatchService`), which looks at the server's files alone.
"""

import logging
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Final

from sprocket.common.config.properties import parse
from sprocket.common.errors import ConfigError
from sprocket.remoting.tls.material import client_context, file_state, files_of, read_file, server_context
from sprocket.remoting.tls.settings import CONFIG_FILE, DISABLED, ENFORCING, TlsSettings

logger = logging.getLogger(__name__)

_CONFIG_KEY: Final = "tls.config.file"
_State = dict[Path, tuple[int, int, int]]


class _Watched:
    """TLS settings, and the context made from them and their files."""

    def __init__(self, given: TlsSettings, make: Callable[[TlsSettings], ssl.SSLContext], *, server: bool) -> None:
        self._given = given
        self._make = make
        self._server = server
        self.settings = given
        self._context: ssl.SSLContext | None = None
        self._state: _State = {}

    def read(self) -> TlsSettings:
        """Return the current settings.  Raises ConfigError."""
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
        # Before the files are read: a file that changes meanwhile is read again.
        self._state = self._look()
        self._context = self._make(settings)
        return self._context

    def reload(self) -> None:
        """Make the context again if a file has changed.  An invalid file is logged once and changes nothing."""
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
        """Return the current context; the first call makes it and may raise ConfigError."""
        return self._context or self.load()


class ServerTls:
    """TLS of listening ports; several ports may share one.

    Call `reload` from time to time.
    """

    def __init__(self, settings: TlsSettings) -> None:
        self._watched = _Watched(settings, server_context, server=True)

    @property
    def mode(self) -> str:
        """tls.server.mode."""
        return self._watched.settings.server_mode

    @property
    def is_offered(self) -> bool:
        """Whether a connection may be TLS."""
        return self.mode != DISABLED

    @property
    def is_enforcing(self) -> bool:
        """Whether plain connections are refused."""
        return self.mode == ENFORCING

    def start(self) -> None:
        """Read the files, unless TLS is off.  The test mode's certificate is made for the first connection.

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
        """Reload files that have changed."""
        self._watched.reload()

    def context(self) -> ssl.SSLContext:
        """Return the context of a new connection.  Raises ConfigError."""
        return self._watched.context


class ClientTls:
    """TLS of the connections of a client."""

    def __init__(self, settings: TlsSettings) -> None:
        self._watched = _Watched(settings, client_context, server=False)

    @classmethod
    def of(cls, settings: TlsSettings | None) -> "ClientTls | None":
        """Return the TLS of a client with `settings`; None if its connections are plain."""
        return cls(settings) if settings is not None and settings.is_client else None

    def start(self) -> None:
        """Read the files.  Raises ConfigError that names the key, the file and what is wrong."""
        self._watched.load()

    def context(self) -> ssl.SSLContext:
        """Return the context of a new connection.  Raises ConfigError if there was never a valid one."""
        self._watched.reload()
        return self._watched.context


def _with_file(given: TlsSettings) -> TlsSettings:
    """Return `given` with the file of tls.config.file; only the default file may be missing.  Raises ConfigError."""
    path = given.config_file
    if path is None or (path == CONFIG_FILE and not path.is_file()):
        return given
    settings, notices = given.with_file(parse(read_file(_CONFIG_KEY, path), str(path)), str(path))
    for notice in notices:
        logger.warning("event=tls_key_ignored detail=%r", notice)
    return settings
