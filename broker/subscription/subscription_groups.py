"""Table of this broker's consumer groups, stored in ``config/subscriptionGroup.json``.

Source: RocketMQ 5.3.3, `SubscriptionGroupManager`.
"""

import logging
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from copy import copy
from typing import Final

import msgspec

from broker.attributes import altered
from broker.config.live_config import LiveConfig
from broker.config.versioned_table import EntryTable
from broker.names import illegal_new_group
from broker.namespace.namespaces import NO_NAMESPACES, Namespaces
from broker.plan.refusals import unknown_group
from broker.plan.table import Refused
from broker.subscription.group_attributes import GROUP_ATTRIBUTES
from sprocket.common.clock import Clock
from sprocket.common.errors import DiskFull
from sprocket.common.files.config_file import ConfigFile
from sprocket.common.logs.peer_lines import peer_lines
from sprocket.common.refusal_reasons import Reason
from sprocket.remoting.bodies.group import SubscriptionGroupConfig, SubscriptionGroupTable
from sprocket.remoting.codec.fastjson import dumps, loads
from sprocket.remoting.codes import ResponseCode
from sprocket.remoting.message.topic_names import SYSTEM_GROUP_PREFIX, SYSTEM_GROUPS

logger = logging.getLogger(__name__)
# Max groups of one write with their own log line.
_MAX_GROUP_LINES: Final = 16
# Fields that fastjson omits when they are null.
_NULLABLE: Final = (b"exponentialRetryPolicy", b"customizedRetryPolicy", b"subscriptionDataSet")


class SubscriptionGroups(EntryTable[SubscriptionGroupConfig, SubscriptionGroupTable]):
    """Table of groups: name -> `SubscriptionGroupConfig`.

    A change is in memory at once and in the file soon after.  A response to an operator waits for `save`; a change that
    cannot be written is undone.
    """

    def __init__(
        self,
        config: LiveConfig,
        file: ConfigFile,
        clock: Clock,
        *,
        is_copy: bool = False,
        namespaces: Namespaces = NO_NAMESPACES,
    ) -> None:
        super().__init__(file, clock, SubscriptionGroupTable, config.plan_version)
        self._config = config
        self.namespaces = namespaces
        self.by_name.update((name, SubscriptionGroupConfig(name)) for name in SYSTEM_GROUPS)
        self._forbidden: dict[str, dict[str, int]] = {}  # replaced, never changed
        # Whether the table is a copy of a master's; then this replica adds nothing to it.
        self.is_copy = is_copy

    def decode(self, content: bytes) -> None:
        """Add the groups of the file.  Raises ProtocolError."""
        table = loads(content, SubscriptionGroupTable)
        self._install(table)
        self._forbidden = self._forbidden | table.forbidden_table
        logger.info("event=subscription_groups_loaded count=%d", len(table.subscription_group_table))

    def find(self, group: str) -> SubscriptionGroupConfig | None:
        """Return the group's configuration; if it is new and autoCreateSubscriptionGroup allows it, create the group.

        No response waits for the file: if a crash loses the group, its next request creates it again.  On a full disk
        the group exists in memory only until another change is written, so that a consumer can read.  In a copy of a
        master's table, return the configuration without creating the group.
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
            self._add(created)
        return created

    def _add(self, config: SubscriptionGroupConfig) -> None:
        """Add a group that stays in memory until the next write, if it cannot be written now."""

        def keep() -> None:
            self._not_written()
            peer_lines.warning(logger, "", "event=subscription_group_not_saved group=%s", config.group_name)

        self._enter({config.group_name: config})
        self._change((config.group_name,), keep)

    def _creates(self, group: str) -> bool:
        """Whether the first use creates the group (`MixAll.isSysConsumerGroupAndEnableCreate`)."""
        broker = self._config.broker
        is_system = group.startswith(SYSTEM_GROUP_PREFIX) and broker.enable_create_sys_group
        is_wanted = (broker.auto_create_subscription_group or is_system) and illegal_new_group(group) is None
        return is_wanted and (self.is_copy or self.namespaces.full_of_groups(group, self.by_name) is None)

    def unknown(self, group: str) -> Refused:
        """Return the refusal of a group for which `find` returns None."""
        reason = self.namespaces.full_of_groups(group, self.by_name)
        if reason is None:
            return unknown_group(group)
        return Refused(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, reason, Reason.NAMESPACE)

    def described(self, group: str) -> SubscriptionGroupConfig | None:
        """Return the configuration as `find` does, but never create the group."""
        existing = self.get(group)
        return SubscriptionGroupConfig(group) if existing is None and self._creates(group) else existing

    def forbidden(self, group: str, topic: str) -> int:
        """Return the permission bits that a group does not have for a topic; PERM_READ forbids to consume."""
        return self._forbidden.get(group, {}).get(topic, 0)

    def forbid(self, group: str, topic: str, bits: int) -> None:
        """Set the permission bits that a group does not have for a topic; 0 forbids nothing."""
        after = {name: dict(topics) for name, topics in self._forbidden.items()}
        after.setdefault(group, {})[topic] = bits
        if not bits:
            del after[group][topic]
        self._set_with({}, {name: topics for name, topics in after.items() if topics})
        peer_lines.info(logger, "", "event=group_forbidden group=%s topic=%s bits=%d", group, topic, bits)

    def _body_of(self, entries: dict[str, SubscriptionGroupConfig]) -> SubscriptionGroupTable:
        # The table of forbidden bits is replaced, never modified.
        return SubscriptionGroupTable(entries, self._forbidden, copy(self.data_version))

    def encode(self, part: Mapping[str, SubscriptionGroupConfig] | None = None) -> bytes:
        """Return the response body of GET_ALL_SUBSCRIPTIONGROUP_CONFIG; faster than `dumps`, for 10,000 groups.

        With `part` it has only these groups.
        """
        table = self.snapshot()
        if part is not None:
            forbidden = {group: topics for group, topics in table.forbidden_table.items() if group in part}
            table = SubscriptionGroupTable(dict(part), forbidden, table.data_version)
        text = msgspec.json.encode(table)
        for name in _NULLABLE:
            # A string value cannot contain this text, as its quotes would be escaped.  None of these is a first field.
            text = text.replace(b',"%b":null' % name, b"")
        return dumps(table) if b":null" in text else text

    def update(self, configs: Iterable[SubscriptionGroupConfig]) -> None:
        """Create or change groups, all or none.  Wait for `save` until the file has the change.

        Raises RequestError for an attribute that is unknown, or not allowed.
        """
        checked = []
        for config in configs:
            after = copy(config)
            existing = self.by_name.get(config.group_name)
            before = None if existing is None else existing.attributes
            after.attributes = altered(before, config.attributes, GROUP_ATTRIBUTES)
            checked.append(after)
        if checked:
            self._set({config.group_name: config for config in checked})

    def delete(self, group: str) -> bool:
        """Remove a group; return whether it existed."""
        if group not in self.by_name:
            return False
        self._set_with({group: None}, {name: topics for name, topics in self._forbidden.items() if name != group})
        return True

    def _set_with(
        self, changes: dict[str, SubscriptionGroupConfig | None], forbidden: dict[str, dict[str, int]]
    ) -> None:
        """Change entries, and what is forbidden."""
        before, self._forbidden = self._forbidden, forbidden

        def undo() -> None:
            self._forbidden = before

        self._set(changes, undo)

    # The file

    def _on_saved(self, changes: list[Sequence[str]]) -> None:
        changed, deleted = self._outcome(changes)
        for config in changed[:_MAX_GROUP_LINES]:
            peer_lines.info(
                logger, "", "event=subscription_group_changed group=%s config=%s", config.group_name, config
            )
        if len(changed) > _MAX_GROUP_LINES:
            peer_lines.info(logger, "", "event=subscription_groups_changed count=%d", len(changed))
        if deleted:
            peer_lines.info(
                logger, "", "event=subscription_groups_deleted count=%d first=%s", len(deleted),
                deleted[:_MAX_GROUP_LINES],
            )  # fmt: skip

    # A slave's table is its master's

    def _take_over(self, table: SubscriptionGroupTable) -> None:
        self._forbidden = table.forbidden_table
        super()._take_over(table)
