"""Certificates of an authority, in files, as a cluster has them."""

import datetime
from pathlib import Path

from sprocket.remoting.tls.certificates import Pair, issue, make_authority
from sprocket.remoting.tls.settings import ENFORCING, TlsSettings

NOW = datetime.datetime.now(datetime.UTC)


class Files:
    """One authority in `folder`, and what it issues."""

    def __init__(self, folder: Path, name: str = "Test CA") -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.authority = make_authority(name, NOW, 30)
        self.ca = folder / "ca.pem"
        self.ca.write_bytes(self.authority.certificate_pem())

    def issue(self, name: str, *hosts: str, now: datetime.datetime = NOW, days: int = 30) -> tuple[Path, Path]:
        """The files of a certificate and its key."""
        return self.write(name, issue(self.authority, name, hosts, now, days))

    def write(self, name: str, pair: Pair) -> tuple[Path, Path]:
        certificate, key = self.folder / f"{name}.pem", self.folder / f"{name}.key"
        certificate.write_bytes(pair.certificate_pem())
        key.write_bytes(pair.key_pem())
        return certificate, key

    def server(self, *hosts: str, mode: str = ENFORCING, clients: str = "none") -> TlsSettings:
        """Of a server that has a certificate for `hosts`."""
        certificate, key = self.issue("server", *(hosts or ("localhost", "127.0.0.1")))
        trust = None if clients == "none" else self.ca
        return TlsSettings(
            server_mode=mode, config_file=None, server_cert_path=certificate, server_key_path=key,
            server_need_client_auth=clients, server_trust_cert_path=trust,
        )  # fmt: skip

    def client(self, name: str | None = None, *, check_host: bool = True) -> TlsSettings:
        """Of a client that trusts the authority, and shows a certificate for `name`."""
        own = (None, None) if name is None else self.issue(name)
        return TlsSettings.for_client(self.ca, *own, check_host=check_host)
