"""Certificate of the gRPC port: RocketMQ's test mode, or files.

A file of its own, and an edge: the server knows nothing of files.
"""

import datetime
from pathlib import Path
from typing import Final

from proxy.config import ProxyConfig
from proxy.server.protocol import Certificate
from sprocket.common.errors import ConfigError
from sprocket.remoting.tls.certificates import TEST_NAME, issue, make_authority, mismatch
from sprocket.remoting.tls.material import read_file

_TEST_DAYS: Final = 3650


def certificate_of(config: ProxyConfig) -> Certificate:
    """Return the certificate of the port.  Raises ConfigError with the key, the file and the fault."""
    if config.tls_test_mode_enable:
        now = datetime.datetime.now(datetime.UTC)
        # gRPC's TLS refuses the certificate of an authority as a server's.
        pair = issue(make_authority(TEST_NAME, now, _TEST_DAYS), TEST_NAME, ["localhost"], now, _TEST_DAYS)
        cert, key = pair.certificate_pem(), pair.key_pem()
    else:
        cert = read_file("tlsCertPath", Path(config.tls_cert_path))
        key = read_file("tlsKeyPath", Path(config.tls_key_path))
        reason = mismatch(cert, key, "")
        if reason is not None:
            named = {
                "certificate": f"tlsCertPath = {config.tls_cert_path}",
                "key": f"tlsKeyPath = {config.tls_key_path}",
            }
            raise ConfigError(f"{named[reason.part]}: {reason.text}")
    return Certificate(cert, key)
