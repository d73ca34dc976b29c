"""Folder with the certificates of one cluster: an authority, and the certificates of servers and clients.

It also has files of TLS keys with RocketMQ's names, for Sprocket and for Java.
An edge file: it writes and reads that folder.
"""

import datetime
import os
import secrets
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from sprocket.common.config.properties import render
from sprocket.common.errors import ConfigError
from sprocket.remoting.tls.certificates import Pair, common_name, issue, load_authority, make_authority
from sprocket.remoting.tls.settings import REQUIRE, TlsSettings

HOSTS: Final = ("localhost", "127.0.0.1", "::1")
SERVERS: Final = ("namesrv", "broker")
CLIENT: Final = "client"
AUTHORITY_DAYS: Final = 3650
_AUTHORITY: Final = "ca"
_KEY_MODE: Final = 0o600
_SECRET_BYTES: Final = 32
_JAVA: Final = """\
# For Sprocket's commands: SPROCKET_TLS={folder}
# For RocketMQ's clients, and for its tools in JAVA_OPT: -Dtls.enable=true -Dtls.config.file={file}
"""
_SERVER: Final = """\
# In the server's own file: tls.server.mode = enforcing, tls.config.file = {file}
# For RocketMQ's server: -Dtls.server.mode=enforcing -Dtls.enable=true -Dtls.config.file={file}
"""


class TlsFolder:
    """Folder at `path`, which need not exist yet."""

    def __init__(self, path: Path) -> None:
        self.path = path.absolute()

    @property
    def authority_file(self) -> Path:
        """Certificate of the authority, to be trusted."""
        return self.certificate_file(_AUTHORITY)

    def certificate_file(self, name: str) -> Path:
        """Return the certificate of ``namesrv``, ``broker`` or a client."""
        return self.path / f"{name}.pem"

    def key_file(self, name: str) -> Path:
        """Return the private key of ``namesrv``, ``broker`` or a client."""
        return self.path / f"{name}.key"

    @property
    def replication_secret(self) -> Path:
        """Secret that brokers prove to each other before replication (haSecretFile).  Older folders have none."""
        return self.path / "replication.secret"

    def properties(self, name: str) -> Path:
        """Return the file of TLS keys of ``namesrv``, ``broker`` or a client."""
        return self.path / f"{name}.properties"

    def client_settings(self, name: str = CLIENT) -> TlsSettings:
        """Return the TLS settings of a client.  Raises ConfigError if the folder has no keys for it."""
        if not self.properties(name).is_file():
            raise ConfigError(f"{self.path}: has no {name}.properties; sprocket tls init makes a folder of keys")
        return TlsSettings(enable=True, config_file=self.properties(name))

    def create(self, hosts: Sequence[str], now: datetime.datetime, days: int, client_auth: str = REQUIRE) -> None:
        """Create an authority, and certificates for servers at `hosts` and one client; replace existing files.

        Raises OSError.
        """
        self.path.mkdir(parents=True, exist_ok=True)
        name = f"Sprocket cluster, {now:%Y-%m-%d}"
        authority = make_authority(name, now, AUTHORITY_DAYS)
        self._write(_AUTHORITY, authority)
        for server in SERVERS:
            self._write(server, issue(authority, server, hosts, now, days))
            self._write_properties(server, client_auth)
        # A client's certificate also passes at the port for slaves: replication needs a secret of the brokers.
        _replace(self.replication_secret, secrets.token_hex(_SECRET_BYTES).encode() + b"\n", _KEY_MODE)
        self.add_client(CLIENT, now, days)

    def add_client(self, name: str, now: datetime.datetime, days: int) -> None:
        """Create a certificate for a client of that name.  Raises ConfigError without an authority, OSError."""
        self._write(name, issue(self._load_authority(), name, (), now, days))
        self._write_properties(name, None)

    def renew(self, now: datetime.datetime, days: int) -> list[str]:
        """Replace all certificates by new ones of the same authority; return their names.  Raises as `add_client`."""
        authority = self._load_authority()
        renewed = []
        for file in sorted(self.path.glob("*.properties")):
            name = file.stem
            hosts = _hosts(self.certificate_file(name).read_bytes()) if name in SERVERS else ()
            self._write(name, issue(authority, name, hosts, now, days))
            renewed.append(name)
        return renewed

    def present(self) -> list[Path]:
        """Return the files that `create` would replace."""
        names = (_AUTHORITY, *SERVERS, CLIENT)
        files = [file(name) for name in names for file in (self.certificate_file, self.key_file, self.properties)]
        return [file for file in (*files, self.replication_secret) if file.exists()]

    def _load_authority(self) -> Pair:
        key = self.key_file(_AUTHORITY)
        try:
            return load_authority(self.authority_file.read_bytes(), key.read_bytes())
        except OSError as error:
            raise ConfigError(
                f"{error.filename}: cannot be read: {error.strerror}; sprocket tls init makes it"
            ) from None
        except (ValueError, TypeError) as error:
            raise ConfigError(f"{key}: not the key that sprocket tls init made: {error}") from None

    def _write(self, name: str, pair: Pair) -> None:
        # The key last: a server that reads in between keeps its old pair.
        _replace(self.certificate_file(name), pair.certificate_pem(), 0o644)
        _replace(self.key_file(name), pair.key_pem(), _KEY_MODE)

    def _write_properties(self, name: str, client_auth: str | None) -> None:
        pair = {
            "keyPath": self.key_file(name),
            "certPath": self.certificate_file(name),
            "trustCertPath": self.authority_file,
        }
        values = {"tls.test.mode.enable": "false"}
        if client_auth is not None:
            values |= {f"tls.server.{key}": str(file) for key, file in pair.items()}
            values |= {"tls.server.need.client.auth": client_auth, "tls.server.authClient": "true"}
        values |= {f"tls.client.{key}": str(file) for key, file in pair.items()}
        values["tls.client.authServer"] = "true"
        file = self.properties(name)
        head = (_JAVA if client_auth is None else _SERVER).format(folder=self.path, file=file)
        _replace(file, (head + render(values)).encode("iso-8859-1", "backslashreplace"), 0o644)


def _replace(path: Path, content: bytes, mode: int) -> None:
    new = path.with_name(f"{path.name}.new")
    new.unlink(missing_ok=True)
    with os.fdopen(os.open(new, os.O_CREAT | os.O_EXCL | os.O_WRONLY, mode), "wb") as file:
        file.write(content)
    new.replace(path)


def _hosts(certificate_pem: bytes) -> list[str]:
    """Return the names and addresses in a server's certificate."""
    from cryptography import x509

    certificate = x509.load_pem_x509_certificate(certificate_pem)
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert common_name(certificate) in SERVERS
    return [*names.get_values_for_type(x509.DNSName), *map(str, names.get_values_for_type(x509.IPAddress))]
