"""The consumer groups of this broker, kept in ``config/subscriptionGroup.json``.

Source: RocketMQ 5.3.3, `SubscriptionGroupManager`.
"""

import logging
from collections.abc import Iterable, Mapping
from copy import copy
from typing import Final

import msgspec

from broker.config_file import ConfigFile, pretty
from broker.live_config import LiveConfig
from broker.names import SYSTEM_GROUP_PREFIX, SYSTEM_GROUPS, illegal_group
from remoting.bodies.group import SubscriptionGroupConfig, SubscriptionGroupTable
from remoting.bodies.topic import DataVersion
from remoting.codes import ResponseCode
from remoting.fastjson import dumps
from sprocket.common.clock import Clock
from sprocket.common.errors import DiskFull, RequestError, StoreError

logger = logging.getLogger(__name__)
# Fields that fastjson leaves out.
_NULLABLE: Final = (b"exponentialRetryPolicy", b"customizedRetryPolicy", b"subscriptionDataSet")


class SubscriptionGroups:
    """Name -> `SubscriptionGroupConfig`.  What an operator changes is in the file before the call returns."""

    def __init__(self, config: LiveConfig, file: ConfigFile[SubscriptionGroupTable], clock: Clock) -> None:
        self._config = config
        self._file = file
        self._clock = clock
        self.by_name: dict[str, SubscriptionGroupConfig] = {
            name: SubscriptionGroupConfig(name) for name in SYSTEM_GROUPS
        }
        self._forbidden: dict[str, dict[str, int]] = {}
        self.data_version = DataVersion(timestamp=clock.wall_ms())
        # Whether the table is a copy of a master's: this replica adds nothing to it.
        self.is_copy = False

    def load(self) -> None:
        """Add what the file holds.  Raises `StoreError` if the file is broken beyond its backup."""
        content = self._file.load()
        if content is not None:
            self.by_name.update(content.subscription_group_table)
            self._forbidden.update(content.forbidden_table)
            self.data_version = content.data_version
            logger.info("event=subscription_groups_loaded count=%d", len(content.subscription_group_table))

    def get(self, group: str) -> SubscriptionGroupConfig | None:
        """The group's configuration; None if there is no such group."""
        return self.by_name.get(group)

    def find(self, group: str) -> SubscriptionGroupConfig | None:
        """The group's configuration, made if it is new and autoCreateSubscriptionGroup allows it.

        On a full disk the group is not in the file until another change is, because whoever asks wants to read.  In a
        copy of a master's table it is described and not made.  Raises `DiskFailed`.
        """
        existing = self.by_name.get(group)
        if existing is not None:
            return existing
        if not self._creates(group):
            return None
        created = SubscriptionGroupConfig(group)
        if self.is_copy:
            return created
        try:
            self._put([created])
        except DiskFull as error:
            self.by_name[group] = created
            logger.warning("event=subscription_group_not_saved group=%s reason=%r", group, str(error))
        return created

    def _creates(self, group: str) -> bool:
        """Whether the group is made when it is first used (`MixAll.isSysConsumerGroupAndEnableCreate`)."""
        broker = self._config.broker
        is_system = group.startswith(SYSTEM_GROUP_PREFIX) and broker.enable_create_sys_group
        return (broker.auto_create_subscription_group or is_system) and illegal_group(group) is None

    def described(self, group: str) -> SubscriptionGroupConfig | None:
        """As `find`, for who only wants to know: a group that would be made is described, and not made."""
        existing = self.get(group)
        return SubscriptionGroupConfig(group) if existing is None and self._creates(group) else existing

    def __contains__(self, group: str) -> bool:
        return group in self.by_name

    def forbidden(self, group: str, topic: str) -> int:
        """What a group may not do with a topic: the bits of its permission, PERM_READ for consuming."""
        return self._forbidden.get(group, {}).get(topic, 0)

    def forbid(self, group: str, topic: str, bits: int) -> None:
        """Set what a group may not do with a topic; 0 forbids nothing.  Raises `StoreError`, and is then undone."""
        before = self._forbidden
        after = {name: dict(topics) for name, topics in before.items()}
        after.setdefault(group, {})[topic] = bits
        if not bits:
            del after[group][topic]
        self._forbidden = {name: topics for name, topics in after.items() if topics}
        try:
            self._replace(dict(self.by_name))
        except StoreError:
            self._forbidden = before
            raise
        logger.info("event=group_forbidden group=%s topic=%s bits=%d", group, topic, bits)

    def snapshot(self) -> SubscriptionGroupTable:
        """The table as it is answered."""
        forbidden = {group: dict(topics) for group, topics in self._forbidden.items()}
        return SubscriptionGroupTable(dict(self.by_name), forbidden, copy(self.data_version))

    def encode(self) -> bytes:
        """The answer to GET_ALL_SUBSCRIPTIONGROUP_CONFIG: as `dumps`, many times faster, for there may be 10,000."""
        table = self.snapshot()
        text = msgspec.json.encode(table)
        for name in _NULLABLE:
            # Within a text the quotes would be escaped; none of them is the first field of its object.
            text = text.replace(b',"%b":null' % name, b"")
        return dumps(table) if b":null" in text else text

    def update(self, configs: Iterable[SubscriptionGroupConfig]) -> None:
        """Create or change groups, all or none.

        Raises RequestError for attributes, of which groups have none, and `StoreError` if the file cannot
        be written.
        """
        checked = []
        for config in configs:
            if config.attributes:
                keys = ", ".join(key[1:] for key in config.attributes)
                raise RequestError(ResponseCode.SYSTEM_ERROR, f"unsupported key: {keys}")
            after = copy(config)
            existing = self.by_name.get(config.group_name)
            after.attributes = dict(existing.attributes) if existing is not None else {}
            checked.append(after)
        if checked:
            self._put(checked)

    def delete(self, group: str) -> bool:
        """Forget a group; whether it was there.  Raises `StoreError` if the file cannot be written."""
        if group not in self.by_name:
            return False
        self._replace({name: config for name, config in self.by_name.items() if name != group}, without=group)
        logger.info("event=subscription_group_deleted group=%s", group)
        return True

    def _put(self, configs: list[SubscriptionGroupConfig]) -> None:
        self._replace(self.by_name | {config.group_name: config for config in configs})
        for config in configs:
            logger.info("event=subscription_group_changed group=%s config=%s", config.group_name, config)

    def _replace(self, table: Mapping[str, SubscriptionGroupConfig], without: str | None = None) -> None:
        """The file first: what it does not hold, memory does not hold."""
        version = copy(self.data_version)
        version.next(self._clock.wall_ms())
        forbidden = {group: topics for group, topics in self._forbidden.items() if group != without}
        self._file.write(pretty(SubscriptionGroupTable(dict(table), forbidden, version)))
        self._forbidden = forbidden
        self.by_name.clear()
        self.by_name.update(table)
        self.data_version = version

    def persist(self) -> None:
        """Write the file as it is now.  Raises `StoreError`."""
        self._file.write(pretty(self.snapshot()))

    # A slave's table is its master's

    def replace(self, table: SubscriptionGroupTable) -> None:
        """Put a master's table in the place of this one, unless it is the same version.  It is not saved yet."""
        if table.data_version == self.data_version:
            return
        self._forbidden = table.forbidden_table
        self.by_name.clear()
        self.by_name.update(table.subscription_group_table)
        self.data_version = table.data_version
        self._file.is_unsaved = True

    def take_unsaved(self) -> SubscriptionGroupTable | None:
        """What was taken over and is not saved; the caller must `save` it `pretty`."""
        if not self._file.take_unsaved():
            return None
        return self.snapshot()

    def save(self, content: bytes) -> None:
        """Write the file; may run in another thread.  Raises `StoreError`; it is then still unsaved."""
        self._file.save(content)
