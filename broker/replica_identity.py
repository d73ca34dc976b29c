"""Who a broker is to the other replicas of its group, and the secret by which they know each other.

The secret stands in a file, never in the configuration, which operators can read over the wire.  The id of a store is
random, made once, and kept in ``config/haStore.json``.
"""

import logging
import secrets
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Final

import msgspec

from broker.config_file import ConfigFile, pretty
from broker.core import BrokerCore
from ha.greeting import Credentials
from ha.hello import Identity
from sprocket.common.atomic_file import read_whole
from sprocket.common.errors import ConfigError

logger = logging.getLogger(__name__)

_STORE_ID_BYTES: Final = 16
_MOST_SECRET_BYTES: Final = 64 * 1024


class HaStore(msgspec.Struct, rename="camel"):
    """The content of haStore.json."""

    store_id: str = ""


def credentials(core: BrokerCore, random_bytes: Callable[[int], bytes] = secrets.token_bytes) -> Credentials:
    """Of this broker, as its configuration says.  Raises ConfigError for haSecretFile, or `StoreError`."""
    broker, store = core.config.broker, core.config.store
    file = ConfigFile(store.store_path_root_dir / "config" / "haStore.json", HaStore)
    content = file.load() or HaStore()
    if not content.store_id:
        content.store_id = random_bytes(_STORE_ID_BYTES).hex()
        file.write(pretty(content))
    identity = Identity(broker.broker_cluster_name, broker.broker_name, broker.broker_id, content.store_id)
    secret = read_secret(Path(store.ha_secret_file)) if store.ha_secret_file else b""
    return Credentials(identity, random_bytes, secret, allow_plain=store.ha_allow_plain_peers)


def read_secret(path: Path) -> bytes:
    """The content of haSecretFile without white space around it.  Raises ConfigError."""
    try:
        mode = path.stat().st_mode
        content = (read_whole(path) or b"") if stat.S_ISREG(mode) else None
    except OSError as error:
        raise ConfigError(f"haSecretFile = {path}: {error.strerror or error}") from None
    if content is None:
        raise ConfigError(f"haSecretFile = {path}: is no file")
    secret = content.strip()
    if not secret or len(secret) > _MOST_SECRET_BYTES:
        raise ConfigError(f"haSecretFile = {path}: holds {len(secret)} bytes, allowed are 1 to {_MOST_SECRET_BYTES}")
    if mode & (stat.S_IROTH | stat.S_IWOTH):
        logger.warning("event=secret_exposed file=%s mode=%s reason=others-may-read-it", path, stat.filemode(mode))
    return secret
