"""Contexts of TLS, made from the files that settings name.  An edge file.

TLS 1.2 and 1.3 alone; of 1.2 only suites with forward secrecy and authenticated encryption.
"""

import datetime
import ssl
import tempfile
from pathlib import Path
from typing import Final

from sprocket.common.errors import ConfigError
from sprocket.common.files.regular_file import read_regular
from sprocket.remoting.tls.certificates import Reason, mismatch, test_mode_pair
from sprocket.remoting.tls.settings import NONE, REQUIRE, TlsSettings

# For TLS 1.2; all suites of 1.3 are of this kind.
CIPHERS: Final = "ECDHE+AESGCM:ECDHE+CHACHA20"
# Size of a file: the authorities of a whole system take a quarter.
_MAX_FILE_BYTES: Final = 1 << 20


def server_context(settings: TlsSettings) -> ssl.SSLContext:
    """Return the context for connections of a server.  Raises ConfigError with the key, the file and the fault."""
    context = _context(ssl.PROTOCOL_TLS_SERVER)
    if settings.is_test:
        _load_test_pair(context)
        return context
    _load_pair(context, "server", settings.server_cert_path, settings.server_key_path, settings.server_key_password)
    if settings.server_need_client_auth != NONE and settings.checks_clients:
        _trust(context, "server", settings.server_trust_cert_path, ssl.Purpose.CLIENT_AUTH)
        is_required = settings.server_need_client_auth == REQUIRE
        context.verify_mode = ssl.CERT_REQUIRED if is_required else ssl.CERT_OPTIONAL
    return context


def client_context(settings: TlsSettings) -> ssl.SSLContext:
    """Return the context for connections of a client.  Raises ConfigError as `server_context`."""
    context = _context(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    if settings.checks_servers:
        _trust(context, "client", settings.client_trust_cert_path, ssl.Purpose.SERVER_AUTH)
        context.check_hostname = settings.client_check_host
    else:
        context.verify_mode = ssl.CERT_NONE
    if settings.client_cert_path is not None:
        _load_pair(context, "client", settings.client_cert_path, settings.client_key_path, settings.client_key_password)
    return context


def files_of(settings: TlsSettings, *, server: bool) -> list[Path]:
    """Return the files that a context is made of."""
    if server:
        named = settings.server_cert_path, settings.server_key_path, settings.server_trust_cert_path
    else:
        named = settings.client_cert_path, settings.client_key_path, settings.client_trust_cert_path
    return [path for path in (settings.config_file, *named) if path is not None]


def file_state(path: Path) -> tuple[int, int, int]:
    """Return what changes with a file: inode, time of its last change in ns, size; zeros without a file."""
    try:
        about = path.stat()
    except (OSError, ValueError):
        return 0, 0, 0
    return about.st_ino, about.st_mtime_ns, about.st_size


def read_file(key: str, path: Path) -> bytes:
    """Return the content of a file that one could be.  Raises ConfigError."""
    try:
        return read_regular(path, _MAX_FILE_BYTES)
    except OSError as error:
        raise ConfigError(f"{key} = {path}: cannot be read: {error.strerror or error}") from None
    except ValueError as error:  # a NUL in its name
        raise ConfigError(f"{key} = {str(path)!r}: {error}") from None


def _context(protocol: int) -> ssl.SSLContext:
    context = ssl.SSLContext(protocol)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_ciphers(CIPHERS)
    # A client that keeps asking for new handshakes would cost the server more than itself.
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION | ssl.OP_CIPHER_SERVER_PREFERENCE
    return context


def _load_pair(context: ssl.SSLContext, side: str, cert: Path | None, key: Path | None, password: str) -> None:
    if cert is None or key is None:
        raise ConfigError(f"tls.{side}.certPath and tls.{side}.keyPath: both are needed")
    cert_pem, key_pem = read_file(f"tls.{side}.certPath", cert), read_file(f"tls.{side}.keyPath", key)
    try:
        # Always a password: without one OpenSSL would ask for it at the terminal.
        context.load_cert_chain(cert, key, password=lambda: password)
    except (OSError, ValueError) as error:  # SSLError is of the first; a file may be gone by now
        reason = _fault(cert_pem, key_pem, password)
        wrong = {"certificate": f"tls.{side}.certPath = {cert}", "key": f"tls.{side}.keyPath = {key}"}
        if reason is not None:
            raise ConfigError(f"{wrong[reason.part]}: {reason.text}") from None
        raise ConfigError(f"{wrong['certificate']}, {wrong['key']}: {error}") from None


def _fault(cert_pem: bytes, key_pem: bytes, password: str) -> Reason | None:
    """Return why OpenSSL refuses a pair; None if that is not found, or cannot be found without cryptography."""
    try:
        return mismatch(cert_pem, key_pem, password)
    except ModuleNotFoundError:
        return None


def _trust(context: ssl.SSLContext, side: str, path: Path | None, purpose: ssl.Purpose) -> None:
    if path is None:
        # As in Java: the authorities of the system.
        context.load_default_certs(purpose)
        return
    read_file(f"tls.{side}.trustCertPath", path)
    try:
        context.load_verify_locations(path)
    except OSError:
        raise ConfigError(f"tls.{side}.trustCertPath = {path}: it holds no certificate in PEM") from None


def _load_test_pair(context: ssl.SSLContext) -> None:
    """Load a test certificate from temporary files, which are removed at once: OpenSSL loads only from files."""
    cert_pem, key_pem = test_mode_pair(datetime.datetime.now(datetime.UTC))
    with tempfile.TemporaryDirectory(prefix="sprocket-tls-") as folder:
        cert, key = Path(folder, "cert"), Path(folder, "key")
        cert.write_bytes(cert_pem)
        # The folder is this user's alone.
        key.write_bytes(key_pem)
        context.load_cert_chain(cert, key)
