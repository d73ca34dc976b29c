"""Identity of a broker among the replicas of its group, and the secret that they share.

The secret is that of `ha.shared_secret`.  The id of a store is random, made once, and kept in ``config/haStore.json``.
"""

import secrets
from collections.abc import Callable
from pathlib import Path
from typing import Final

import msgspec

from broker.auth.access_control import AccessControl
from broker.core import BrokerCore
from ha.greeting import Credentials
from ha.hello import Identity
from ha.shared_secret import read_secret, secret_of
from sprocket.common.files.config_file import ConfigFile
from sprocket.remoting.codec.fastjson import loads
from sprocket.remoting.codec.pretty_json import pretty

_STORE_ID_BYTES: Final = 16
_SECRET_BYTES: Final = 32


class HaStore(msgspec.Struct, rename="camel"):
    """The content of haStore.json."""

    store_id: str = ""


def credentials(
    core: BrokerCore, access: AccessControl | None = None, random_bytes: Callable[[int], bytes] = secrets.token_bytes
) -> Credentials:
    """Return this broker's credentials; without haSecretFile the secret is derived from `access`.

    Raises ConfigError for haSecretFile, or StoreError.
    """
    broker, store = core.config.broker, core.config.store
    file = ConfigFile(store.store_path_root_dir / "config" / "haStore.json")
    content = file.load(lambda content: loads(content, HaStore)) or HaStore()
    if not content.store_id:
        content.store_id = random_bytes(_STORE_ID_BYTES).hex()
        file.write(pretty(content))
    identity = Identity(broker.broker_cluster_name, broker.broker_name, broker.broker_id, content.store_id)
    if store.ha_secret_file:
        secret = read_secret(Path(store.ha_secret_file))
    else:
        secret = _secret_of(access, random_bytes) if access is not None and access.is_guarded else b""

    def own_address() -> str:
        # The address that name servers publish, see `BrokerConfig.ha_address`; the port may be chosen later.
        return core.config.broker.ha_address

    return Credentials(identity, random_bytes, secret, store.ha_allow_plain_peers, own_address)


def _secret_of(access: AccessControl, random_bytes: Callable[[int], bytes]) -> bytes:
    """Return the secret of a broker that accepts only signed requests; random if it signs nothing itself."""
    account = access.credentials
    return random_bytes(_SECRET_BYTES) if account is None else secret_of(account)


def new_nonce(size_bytes: int) -> bytes:
    """Return random bytes that cannot be guessed."""
    return secrets.token_bytes(size_bytes)
