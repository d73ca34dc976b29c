"""The consumer groups of this broker, kept in ``config/subscriptionGroup.json``.

Source: RocketMQ 5.3.3, `SubscriptionGroupManager`.
"""

import logging
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from copy import copy
from typing import Final

import msgspec

from broker.config.config_file import ConfigFile, EntryTexts, pretty
from broker.config.live_config import LiveConfig
from broker.names import SYSTEM_GROUP_PREFIX, SYSTEM_GROUPS, illegal_group
from sprocket.common.clock import Clock
from sprocket.common.errors import DiskFull, RequestError
from sprocket.common.table_saver import TableSaver
from sprocket.remoting.bodies.group import SubscriptionGroupConfig, SubscriptionGroupTable
from sprocket.remoting.bodies.topic import DataVersion
from sprocket.remoting.codec.fastjson import dumps
from sprocket.remoting.codes import ResponseCode

logger = logging.getLogger(__name__)
# Groups of one write that have a log line of their own.
_MAX_GROUP_LINES: Final = 16
# Fields that fastjson leaves out.
_NULLABLE: Final = (b"exponentialRetryPolicy", b"customizedRetryPolicy", b"subscriptionDataSet")


class SubscriptionGroups:
    """Name -> `SubscriptionGroupConfig`.  A change is in memory at once and soon in the file, see `saving`.

    Who answers an operator waits for `saving`; a change that cannot be written is undone.
    """

    def __init__(
        self, config: LiveConfig, file: ConfigFile[SubscriptionGroupTable], clock: Clock, *, is_copy: bool = False
    ) -> None:
        self._config = config
        self._file = file
        self._clock = clock
        self.by_name: dict[str, SubscriptionGroupConfig] = {
            name: SubscriptionGroupConfig(name) for name in SYSTEM_GROUPS
        }
        self._forbidden: dict[str, dict[str, int]] = {}  # replaced, never changed
        self._texts = EntryTexts[SubscriptionGroupConfig]("subscriptionGroupTable")
        self._unwritten: dict[str, SubscriptionGroupConfig | None] | None = None  # since the last write; None means all
        self.saving = TableSaver[list[str]](self._next_content, self._file.write, self._on_saved)
        self.data_version = DataVersion(timestamp=clock.wall_ms())
        # Whether the table is a copy of a master's: this replica adds nothing to it.
        self.is_copy = is_copy

    def load(self) -> None:
        """Add what the file holds.  Raises `StoreError` if the file is broken beyond its backup."""
        content = self._file.load()
        if content is not None:
            self.by_name.update(content.subscription_group_table)
            self._forbidden = self._forbidden | content.forbidden_table
            self.data_version = content.data_version
            self._unwritten = None
            logger.info("event=subscription_groups_loaded count=%d", len(content.subscription_group_table))

    def get(self, group: str) -> SubscriptionGroupConfig | None:
        """The group's configuration; None if there is no such group."""
        return self.by_name.get(group)

    def find(self, group: str) -> SubscriptionGroupConfig | None:
        """The group's configuration, made if it is new and autoCreateSubscriptionGroup allows it.

        Nobody waits until it is in the file: a group that a crash lost is made again by its next request.  On a full
        disk it is not in the file until another change is, because a consumer wants to read.  In a copy of a master's
        table it is described and not made.
        """
        existing = self.by_name.get(group)
        if existing is not None:
            return existing
        if not self._creates(group):
            return None
        created = SubscriptionGroupConfig(group)
        if self.is_copy:
            return created
        with suppress(DiskFull):
            self._set({group: created}, self._forbidden, is_kept=True)
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
        """Set what a group may not do with a topic; 0 forbids nothing."""
        after = {name: dict(topics) for name, topics in self._forbidden.items()}
        after.setdefault(group, {})[topic] = bits
        if not bits:
            del after[group][topic]
        self._set({}, {name: topics for name, topics in after.items() if topics})
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
        """Create or change groups, all or none; they are in the file once `saving` says so.

        Raises RequestError for attributes: groups have none.
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
        """Forget a group; whether it was there."""
        if group not in self.by_name:
            return False
        self._set({group: None}, {name: topics for name, topics in self._forbidden.items() if name != group})
        return True

    def _put(self, configs: list[SubscriptionGroupConfig]) -> None:
        self._set({config.group_name: config for config in configs}, self._forbidden)

    def _set(
        self,
        changes: Mapping[str, SubscriptionGroupConfig | None],
        forbidden: dict[str, dict[str, int]],
        *,
        is_kept: bool = False,
    ) -> None:
        """Change entries, to None to remove one, and have the table saved.

        What cannot be written is undone, unless it `is_kept` until the next write.
        """
        version = copy(self.data_version)
        version.next(self._clock.wall_ms())
        before = {name: self.by_name.get(name) for name in changes}
        version_before, forbidden_before = self.data_version, self._forbidden
        self.data_version, self._forbidden = version, forbidden
        self._enter(changes)

        def undo() -> None:
            self._unwritten = None  # of the file nothing is known but that it is as it was
            if is_kept:
                logger.warning("event=subscription_groups_not_saved groups=%s", list(changes)[:_MAX_GROUP_LINES])
                return
            self._enter(before)
            self.data_version, self._forbidden = version_before, forbidden_before

        self.saving.changed(list(changes), undo)

    def _enter(self, changes: Mapping[str, SubscriptionGroupConfig | None]) -> None:
        for name, config in changes.items():
            if config is None:
                self.by_name.pop(name, None)
            else:
                self.by_name[name] = config
        if self._unwritten is not None:
            self._unwritten.update(changes)

    # The file

    def _next_content(self) -> Callable[[], bytes]:
        """What to write: all changes so far.  The texts of groups that have not changed are kept."""
        is_whole = self._unwritten is None
        entries = dict(self.by_name) if self._unwritten is None else self._unwritten
        self._unwritten = {}
        # Tables of what is forbidden are replaced, not changed.
        empty = SubscriptionGroupTable({}, self._forbidden, copy(self.data_version))

        def content() -> bytes:
            if is_whole:
                self._texts.clear()
            self._texts.update(entries)
            return self._texts.within(empty)

        return content

    def _on_saved(self, written: list[list[str]]) -> None:
        names = dict.fromkeys(name for names in written for name in names)
        changed = [config for config in map(self.by_name.get, names) if config is not None]
        deleted = [name for name in names if name not in self.by_name]
        for config in changed[:_MAX_GROUP_LINES]:
            logger.info("event=subscription_group_changed group=%s config=%s", config.group_name, config)
        if len(changed) > _MAX_GROUP_LINES:
            logger.info("event=subscription_groups_changed count=%d", len(changed))
        if deleted:
            logger.info("event=subscription_groups_deleted count=%d first=%s", len(deleted), deleted[:_MAX_GROUP_LINES])

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
        self._unwritten = None
        self._file.is_unsaved = True

    def take_unsaved(self) -> SubscriptionGroupTable | None:
        """What was taken over and is not saved; the caller must `save` it `pretty`."""
        if not self._file.take_unsaved():
            return None
        return self.snapshot()

    def save(self, content: bytes) -> None:
        """Write the file; may run in another thread.  Raises `StoreError`; it is then still unsaved."""
        self._file.save(content)
