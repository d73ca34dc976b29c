"""Secret that the members of a group share: brokers with their replicas, controllers with each other.

The secret is in a file, never in the configuration, which operators can read over the wire.  Without that file, members
that accept only signed requests derive it from the account with which they sign.
"""

import hashlib
import hmac
import logging
import stat
from pathlib import Path
from typing import Final

from sprocket.common.errors import ConfigError
from sprocket.common.files.atomic_file import read_file_or_backup
from sprocket.remoting.credentials import Credentials

logger = logging.getLogger(__name__)

_MAX_SECRET_BYTES: Final = 64 * 1024
_SERVERS: Final = b"sprocket replication 1"


def derived_secret(account: Credentials, purpose: bytes) -> bytes:
    """Return the 32 bytes that only members that sign as `account` can derive.

    `purpose` tells what for, because the account's key also signs requests.
    """
    return hmac.digest(account.secret_key.encode(), purpose + b"\0" + account.access_key.encode(), hashlib.sha256)


def secret_of(account: Credentials) -> bytes:
    """Return the secret of all servers that sign as `account`: of replication, and of the proofs between servers."""
    return derived_secret(account, _SERVERS)


def read_secret(path: Path) -> bytes:
    """Return the content of haSecretFile without surrounding white space.  Raises ConfigError."""
    try:
        mode = path.stat().st_mode
        content = (read_file_or_backup(path) or b"") if stat.S_ISREG(mode) else None
    except OSError as error:
        raise ConfigError(f"haSecretFile = {path}: {error.strerror or error}") from None
    if content is None:
        raise ConfigError(f"haSecretFile = {path}: is not a file")
    secret = content.strip()
    if not secret or len(secret) > _MAX_SECRET_BYTES:
        raise ConfigError(f"haSecretFile = {path}: holds {len(secret)} bytes, allowed are 1 to {_MAX_SECRET_BYTES}")
    if mode & (stat.S_IROTH | stat.S_IWOTH):
        logger.warning("event=secret_exposed file=%s mode=%s reason=others-may-read-it", path, stat.filemode(mode))
    return secret
