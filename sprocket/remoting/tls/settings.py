"""TLS settings of servers and clients, and their precedence.

RocketMQ reads these keys from Java's system properties and from a TLS file.  Sprocket reads them from a server's
configuration file, from JAVA_OPT (``-Dtls.enable=true``), or from the TLS file, which wins as in RocketMQ.
Source of names and defaults: RocketMQ 5.3.3, `TlsSystemConfig`, `TlsHelper.extractTlsConfigFromFile`.

Files that are given change the defaults of other keys: a certificate turns the test mode off, and trusted certificates
turn verification on.  RocketMQ keeps the test mode on and verifies nothing unless a key says so.
"""

import os
import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from sprocket.common.config.configuration import convert, settings_of
from sprocket.common.config.properties import Entry
from sprocket.common.config.setting_fields import bool_setting, setting
from sprocket.common.errors import ConfigError

DISABLED: Final = "disabled"
PERMISSIVE: Final = "permissive"
ENFORCING: Final = "enforcing"
NONE: Final = "none"
OPTIONAL: Final = "optional"
REQUIRE: Final = "require"
CONFIG_FILE: Final = Path("/etc/rocketmq/tls.properties")
# Environment variable: a folder that `sprocket tls init` made, or a file of TLS keys.  If it is set, commands and
# proxies use TLS.
TLS_VARIABLE: Final = "SPROCKET_TLS"
# Keys that the TLS file does not hold, as in RocketMQ.
_NOT_IN_FILE: Final = frozenset({"tls.server.mode", "tls.enable", "tls.config.file"})
# Where RocketMQ's scripts take system properties from.
_JAVA_OPTIONS: Final = ("JAVA_OPT", "JAVA_OPT_EXT")
_PASSWORD: Final = "Of that key, if it is encrypted."


@dataclass(frozen=True)
class TlsSettings:
    """The keys of TLS."""

    server_mode: str = setting(
        PERMISSIVE,
        "What connections may be: disabled, plain; permissive, plain or TLS; enforcing, TLS.",
        allowed=(DISABLED, PERMISSIVE, ENFORCING),
        key="tls.server.mode",
    )
    enable: bool | None = setting(
        None,
        "Use TLS for the connections to others.",
        default_text="of servers whether tls.server.mode is enforcing",
        key="tls.enable",
    )
    config_file: Path | None = setting(
        CONFIG_FILE,
        "File with the keys of TLS but for tls.server.mode and tls.enable; what it says wins.",
        key="tls.config.file",
    )
    test_mode_enable: bool | None = setting(
        None,
        "Show a certificate made for this run, and check none: proof against listeners alone.",
        default_text="`true` unless a key below is set",
        key="tls.test.mode.enable",
    )
    server_need_client_auth: str = setting(
        NONE,
        "Whether clients show a certificate.",
        allowed=(NONE, OPTIONAL, REQUIRE),
        key="tls.server.need.client.auth",
    )
    server_key_path: Path | None = setting(
        None, "The server's private key, PEM (PKCS#8 as RocketMQ).", key="tls.server.keyPath"
    )
    server_key_password: str = setting("", _PASSWORD, secret=True, key="tls.server.keyPassword")
    server_cert_path: Path | None = setting(
        None, "The server's certificate and its chain, PEM.", key="tls.server.certPath"
    )
    server_auth_client: bool | None = setting(
        None,
        "Check the certificates of clients.",
        default_text="`true` with tls.server.trustCertPath",
        key="tls.server.authClient",
    )
    server_trust_cert_path: Path | None = setting(
        None, "Certificates of the authorities that clients' are checked with, PEM.", key="tls.server.trustCertPath"
    )
    client_key_path: Path | None = setting(
        None, "The client's private key, PEM (PKCS#8 as RocketMQ).", key="tls.client.keyPath"
    )
    client_key_password: str = setting("", _PASSWORD, secret=True, key="tls.client.keyPassword")
    client_cert_path: Path | None = setting(
        None, "The client's certificate and its chain, PEM.", key="tls.client.certPath"
    )
    client_auth_server: bool | None = setting(
        None,
        "Check the certificates of servers.",
        default_text="`true` with tls.client.trustCertPath",
        key="tls.client.authServer",
    )
    client_trust_cert_path: Path | None = setting(
        None, "Certificates of the authorities that servers' are checked with, PEM.", key="tls.client.trustCertPath"
    )
    client_check_host: bool = bool_setting(
        True,
        "Where servers are checked: their certificates name the host that was asked for. Not RocketMQ's.",
        key="tls.client.checkHostName",
    )

    @classmethod
    def for_client(
        cls,
        trust: Path | None = None,
        certificate: Path | None = None,
        key: Path | None = None,
        key_password: str = "",
        *,
        check_host: bool = True,
    ) -> "TlsSettings":
        """Return settings of a client that verifies servers by the authorities in `trust`, else by the system's.

        `certificate` and `key` are the client's own, for servers that require one.  All are PEM files.
        """
        return cls(
            enable=True, config_file=None, client_auth_server=True, client_trust_cert_path=trust,
            client_cert_path=certificate, client_key_path=key, client_key_password=key_password,
            client_check_host=check_host,
        )  # fmt: skip

    # Effective values

    @property
    def is_test(self) -> bool:
        """Whether the server's certificate is one made for this run."""
        named = self.server_key_path or self.server_cert_path or self.server_trust_cert_path
        return not named if self.test_mode_enable is None else self.test_mode_enable

    @property
    def checks_clients(self) -> bool:
        """Whether a certificate that a client shows is verified."""
        if self.is_test or self.server_need_client_auth == NONE:
            return False
        if self.server_auth_client is None:
            return self.server_trust_cert_path is not None
        return self.server_auth_client

    @property
    def checks_servers(self) -> bool:
        """Whether the certificate of a server is verified."""
        if self.test_mode_enable:
            return False
        if self.client_auth_server is None:
            return self.client_trust_cert_path is not None
        return self.client_auth_server

    @property
    def is_client(self) -> bool:
        """Whether this process opens TLS connections."""
        return self.server_mode == ENFORCING if self.enable is None else self.enable

    def check_client(self) -> None:
        """Raise ConfigError for a combination that a client cannot have."""
        _check_pair("client", self.client_key_path, self.client_cert_path)

    def check_server(self) -> None:
        """Raise ConfigError for a combination that a server cannot have."""
        _check_pair("server", self.server_key_path, self.server_cert_path)
        if self.is_test:
            return
        if self.server_cert_path is None:
            raise ConfigError(
                "tls.server.certPath is not set: without tls.test.mode.enable the server needs a certificate and"
                " tls.server.keyPath"
            )
        if self.server_need_client_auth == REQUIRE and not self.checks_clients:
            raise ConfigError(
                "tls.server.need.client.auth = require: set tls.server.trustCertPath, whose authorities decide;"
                " unchecked, any certificate that a stranger has made would do"
            )

    def with_file(self, entries: Iterable[Entry], source: str) -> tuple["TlsSettings", list[str]]:
        """Return these settings with those of the TLS file, and notices.  Raises ConfigError."""
        known = {setting.key: setting for setting in settings_of(TlsSettings)}
        values: dict[str, object] = {}
        notices = []
        for entry in entries:
            setting, place = known.get(entry.key), f"{source}:{entry.line}"
            if setting is None or entry.key in _NOT_IN_FILE:
                notices.append(f"{place}: {entry.key} has no effect here")
            else:
                values[setting.field] = convert(setting, entry.value, place, os.environ)
        return _replaced(self, values), notices


def _replaced(settings: TlsSettings, values: Mapping[str, object]) -> TlsSettings:
    return replace(settings, **values)  # type: ignore[arg-type]  # converted as the fields declare


def _check_pair(side: str, key: Path | None, certificate: Path | None) -> None:
    if (key is None) != (certificate is None):
        has, lacks = ("keyPath", "certPath") if key else ("certPath", "keyPath")
        raise ConfigError(f"tls.{side}.{has} is set and tls.{side}.{lacks} is not: a key needs its certificate")


def system_properties(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the TLS keys among the ``-D`` options of JAVA_OPT and JAVA_OPT_EXT, as RocketMQ's scripts set them."""
    found = {}
    for variable in _JAVA_OPTIONS:
        for word in _words(environment.get(variable, "")):
            key, _, value = word.removeprefix("-D").partition("=")
            if word.startswith("-Dtls."):
                found[key] = value
    return found


def file_properties(place: Path) -> dict[str, str]:
    """Return the TLS keys that use a client.properties, or the one in a folder."""
    file = place / "client.properties" if place.is_dir() else place
    return {"tls.enable": "true", "tls.config.file": str(file)}


def _words(text: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError:
        return text.split()
