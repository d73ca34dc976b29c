"""TLS of channels: the client's settings in the form of gRPC.  An edge file: it reads the certificates."""

from pathlib import Path

import grpc

from sprocket.client.errors import TlsUnusable
from sprocket.remoting.tls.settings import TlsSettings


def channel_credentials(tls: TlsSettings) -> grpc.ChannelCredentials:
    """Return gRPC's form of `tls`.  Raises TlsUnusable.  gRPC has no connections that verify nothing."""
    if not tls.checks_servers or not tls.client_check_host:
        raise TlsUnusable("gRPC always verifies the proxy; pass TlsSettings.for_client(trust=...) that names its CA")
    if tls.client_key_password:
        raise TlsUnusable("gRPC takes no encrypted key; write the key of tls.client.keyPath without a password")
    try:
        trust, key, certificate = (
            None if path is None else Path(path).read_bytes()
            for path in (tls.client_trust_cert_path, tls.client_key_path, tls.client_cert_path)
        )
    except OSError as error:
        raise TlsUnusable(
            f"{error.filename} cannot be read: {error.strerror}; check the files of TlsSettings"
        ) from None
    return grpc.ssl_channel_credentials(trust, key, certificate)
