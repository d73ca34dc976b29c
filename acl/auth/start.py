"""Users at the start of a server: from its file, from its configuration, and from accounts of ACL 1.0.

Source: RocketMQ 5.3.3, `AuthenticationMetadataManagerImpl.initUser`, `AuthMigrator`.
"""

import logging
from pathlib import Path

from acl.auth.files import AuthFiles
from acl.auth.migration import migrate
from acl.auth.settings import AuthSettings
from acl.auth.tables import AuthTables
from acl.plain.accounts import WrittenAccount
from acl.plain.files import PlainFiles
from sprocket.common.errors import ConfigError

logger = logging.getLogger(__name__)


def fill(tables: AuthTables, files: AuthFiles, settings: AuthSettings, rocketmq_home: str) -> None:
    """Fill `tables` with all users.  Raises StoreError or ConfigError.

    An existing user is left unchanged, whatever the configuration says of it.
    """
    tables.take(files.load())
    for user in settings.first_users():
        known = tables.user(user.username)
        if known is None:
            tables.create_user(user)
        elif known.password != user.password:
            note = "its password was changed since, or the configuration's; updateUser sets it"
            logger.warning("event=configured_user_differs name=%r note=%r", user.username, note)
    migrate(accounts_of_v1(settings, rocketmq_home), tables)
    if settings.asks_for_users and not any(user.is_super for user in tables.list_users()):
        logger.warning("event=no_super_user note=%r", "nobody can administer; set initAuthenticationUser")


def accounts_of_v1(settings: AuthSettings, rocketmq_home: str) -> list[WrittenAccount]:
    """Return the ACL 1.0 accounts to migrate: none unless migration is enabled.  Raises ConfigError."""
    if not settings.migrate_auth_from_v1_enabled:
        return []
    if not rocketmq_home:
        raise ConfigError("migrateAuthFromV1Enabled = true: set rocketmqHome, whose conf has the accounts")
    written = PlainFiles(Path(rocketmq_home)).written()
    return [account for file in written for account in file.accounts or ()]
