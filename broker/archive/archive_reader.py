"""A broker that serves an archive which other brokers write (readOnlyFrom), of its own cluster or of another one.

Its queues end where the archived ones end, and have no messages in its own log; so pulls, pops, queries, resets and
searches by time find them as they find messages that a local disk has no more.  Its own log begins after all offsets
of an archive.  There is what its groups give back, and the state of their pops.

It takes over topics, with permission to read.  System topics, retry and dead-letter topics are its own.
"""

import logging
from collections.abc import Iterator
from typing import Final

from broker.archive.archive_service import ArchiveService
from broker.config.broker_config import BrokerRole
from broker.core import BrokerCore
from broker.topic.attributes import CLEANUP_POLICY, QUEUE_TYPE
from broker.topic.topics import TopicTable
from sprocket.common.errors import ConfigError, StoreError
from sprocket.common.logs.peer_lines import peer_lines
from sprocket.remoting.bodies.topic import MESSAGE_TYPE, PERM_READ, TopicConfig, TopicConfigTable
from sprocket.remoting.codec.fastjson import loads
from sprocket.remoting.message.topic_names import DLQ_PREFIX, LIGHT_PREFIX, RETRY_PREFIX
from store.layout import AFTER_ARCHIVES
from store.tier.compacted_files import TABLES, CompactedFiles
from store.tier.group_store import GroupStore
from store.tier.manifest import NAME, Manifest
from store.tier.object_store import Damaged, NotFound
from store.tier.whole_objects import read_tables

_log = logging.getLogger(__name__)
_OWN_PREFIXES: Final = (RETRY_PREFIX, DLQ_PREFIX, LIGHT_PREFIX)
_TOPICS: Final = "config/topics.json"
_BATCH: Final = "BatchCQ"


def serves(topics: TopicTable, topic: str) -> bool:
    """Return whether a reader has the messages of this topic from the archive."""
    return not topic.startswith(_OWN_PREFIXES) and not topics.is_system(topic)


class ArchiveReader(ArchiveService):
    """Follows the manifests of `archive`, and uploads nothing."""

    def __init__(self, core: BrokerCore, archive: GroupStore) -> None:
        super().__init__(core, archive, None, None)
        core.store.cleaner.keep_until_archived(None)
        self._archive_of_others = archive
        self._tables_sha256 = ""
        self._tables = CompactedFiles(archive, core.config.store.store_path_root_dir / TABLES)
        self._damaged: list[str] = []

    def check(self) -> None:
        config = self._core.config
        if config.store.archive_url:
            raise ConfigError("readOnlyFrom: this broker cannot have an archive of its own: remove objectStoreBucket")
        if config.broker.broker_role is BrokerRole.SLAVE or config.broker.enable_controller_mode:
            raise ConfigError("readOnlyFrom: such a broker has no slaves and no controllers; start several instead")

    def load(self) -> None:
        log = self._core.store
        if log.first_physical_offset < AFTER_ARCHIVES // 2:
            root = self._core.config.store.store_path_root_dir
            raise StoreError(f"{root}: has a log of its own: give readOnlyFrom another storePathRootDir")

    def start(self) -> None:
        self._begin(self._follow)

    def activate(self) -> None:
        """Do nothing more than on `start`."""

    def deactivate(self) -> None:
        """Go on: readers do not compete."""

    async def _note(self, manifest: Manifest, uploaded_messages: int) -> None:
        if manifest is self._noted:
            return
        core, tables = self._core, manifest.tables
        found = None
        if tables is not None and tables.sha256 != self._tables_sha256:
            found = _topics_in(await read_tables(self._archive_of_others, tables))
        compaction = core.store.compaction
        entries = [one for one in manifest.compacted if serves(core.topics, one.topic)]
        compacted = await self._tables.follow(entries, compaction.queues)
        await core.tier.adopt(manifest)
        # No wait from here on: a reader sees the log and the compacted queues of one manifest.
        ends = core.tier.archived_ends()
        core.store.continue_at(ends | {key: max(ends.get(key, 0), one.end_offset) for key, one in compacted.items()})
        compaction.adopt(compacted)
        if found is not None and tables is not None:
            self._take_over(found)
            self._tables_sha256 = tables.sha256
        self._tell_damaged()
        self.figures_now.note(manifest, 0)
        self._noted = manifest

    def _tell_damaged(self) -> None:
        """Log the compacted topics that are damaged in the archive.  Of these its log is served, as far as it goes."""
        damaged = sorted(self._tables.damaged)
        if damaged != self._damaged:
            self._damaged = damaged
            text = ", ".join(damaged[:10])
            peer_lines.warning(_log, "", "event=archived_tables_incomplete count=%d topics=%r", len(damaged), text)

    def _absent(self) -> None:
        raise NotFound(f"{NAME}: is not there: readOnlyFrom must name the folder of a broker group's archive")

    def _take_over(self, found: TopicConfigTable) -> None:
        """Have the topics of `found`, and no others of those that came from there."""
        topics = self._core.topics
        wanted = {one.topic_name: one for one in self._readable(found)}
        topics.update(wanted.values())
        for name, config in list(topics.by_name.items()):
            if name not in wanted and config.perm == PERM_READ and serves(topics, name):
                topics.delete(name)

    def _readable(self, found: TopicConfigTable) -> Iterator[TopicConfig]:
        topics = self._core.topics
        for name, config in found.topic_config_table.items():
            if not serves(topics, name) or config.attributes.get(QUEUE_TYPE) == _BATCH:
                continue
            kept = () if name in topics else (MESSAGE_TYPE, CLEANUP_POLICY)
            changes = {f"+{key}": config.attributes[key] for key in kept if key in config.attributes}
            yield TopicConfig(
                name, config.read_queue_nums, config.write_queue_nums, config.perm & PERM_READ, order=config.order,
                attributes=changes,
            )  # fmt: skip


def _topics_in(tables: dict[str, bytes]) -> TopicConfigTable | None:
    if _TOPICS not in tables:
        return None
    try:
        return loads(tables[_TOPICS], TopicConfigTable)
    except ValueError as error:
        raise Damaged(f"tables object: {_TOPICS}: {error}") from error
