"""The archive of one broker group: its folder on an object store, with counts of all requests.

Keys are those of the manifest.  The reading and the writing side share one, so the counts say what the broker costs.
"""

from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from typing import Final

from sprocket.common.clock import Clock
from sprocket.metrics.distribution import Distributions
from store.config.store_config import StoreConfig
from store.tier.manifest import folder_of
from store.tier.object_store import NotFound, ObjectInfo, ObjectStore, StoredObject, Version
from store.tier.remote_store import Access, open_store, writes_of

_LATENCY_MS: Final = (1, 3, 5, 10, 30, 50, 100, 300, 500, 1_000, 3_000, 10_000)
_SIZE_BYTES: Final = (1 << 10, 1 << 14, 1 << 17, 1 << 20, 1 << 23, 1 << 26, 1 << 29, 1 << 32)
# Requests in classes as vendors bill them: writes and lists cost about ten times as much as reads, deletions nothing.
_CLASSES: Final = {"put": "write", "put_if": "write", "list": "write", "delete": "delete"}
_LISTED_AT_ONCE: Final = 1000


class GroupStore:
    """`store.tier.object_store.ObjectStore` for one group, in `folder` of `store`; empty: `store` is that folder."""

    def __init__(self, store: ObjectStore, folder: str, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._folder = folder
        # By operation and success, as the labels of the metrics.
        self.latency_ms = Distributions(_LATENCY_MS)
        self.uploaded = Distributions(_SIZE_BYTES)
        self.downloaded = Distributions(_SIZE_BYTES)
        self.requests: Counter[str] = Counter()

    async def put(self, key: str, content: bytes | AsyncIterator[bytes]) -> None:
        with self._counted("put"):
            if isinstance(content, bytes):
                await self._store.put(self._at(key), content)
                self.uploaded.add(("put", "true"), len(content))
                self.requests["write"] += writes_of(len(content), is_stream=False) - 1
            else:
                await self._store.put(self._at(key), self._counting(content))

    async def _counting(self, pieces: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        size_bytes = 0
        async for piece in pieces:
            size_bytes += len(piece)
            yield piece
        self.uploaded.add(("put", "true"), size_bytes)
        self.requests["write"] += writes_of(size_bytes, is_stream=True) - 1

    async def put_if(self, key: str, content: bytes, expected: Version | None) -> Version:
        with self._counted("put_if"):
            version = await self._store.put_if(self._at(key), content, expected)
        self.uploaded.add(("put_if", "true"), len(content))
        return version

    async def get(self, key: str, max_bytes: int) -> StoredObject:
        with self._counted("get"):
            found = await self._store.get(self._at(key), max_bytes)
        self.downloaded.add(("get", "true"), len(found.content))
        return found

    async def get_range(self, key: str, start: int, end: int) -> bytes:
        with self._counted("get_range"):
            found = await self._store.get_range(self._at(key), start, end)
        self.downloaded.add(("get_range", "true"), len(found))
        return found

    async def stream(self, key: str) -> AsyncIterator[bytes | memoryview]:
        size_bytes = 0
        with self._counted("stream"):
            async for piece in self._store.stream(self._at(key)):
                size_bytes += len(piece)
                yield piece
        self.downloaded.add(("stream", "true"), size_bytes)

    async def head(self, key: str) -> ObjectInfo:
        with self._counted("head"):
            return self._own(await self._store.head(self._at(key)))

    async def list(self, prefix: str) -> AsyncIterator[ObjectInfo]:
        with self._counted("list"):
            count = 0
            async for found in self._store.list(self._at(prefix)):
                count += 1
                if count % _LISTED_AT_ONCE == 1 and count > 1:
                    self.requests["write"] += 1
                yield self._own(found)

    async def delete(self, key: str) -> None:
        with self._counted("delete"):
            await self._store.delete(self._at(key))

    def _at(self, key: str) -> str:
        return f"{self._folder}/{key}".strip("/")

    def _own(self, found: ObjectInfo) -> ObjectInfo:
        return found._replace(key=found.key.removeprefix(self._folder + "/"))

    @contextmanager
    def _counted(self, operation: str) -> Iterator[None]:
        began_s, success = self._clock.monotonic(), "false"
        self.requests[_CLASSES.get(operation, "read")] += 1
        try:
            yield
            success = "true"
        except NotFound:
            success = "true"
            raise
        finally:
            self.latency_ms.add((operation, success), (self._clock.monotonic() - began_s) * 1000)


def open_group_store(config: StoreConfig, cluster: str, broker: str, clock: Clock) -> GroupStore | None:
    """Return the archive that the keys name; None without tiered storage.  Makes no request.  Raises `ConfigError`."""
    access = Access(config.object_store_endpoint, config.object_store_access_key, config.object_store_secret_key)
    if config.read_only_from:
        return GroupStore(open_store(config.read_only_from.rstrip("/"), access), "", clock)
    if not config.archive_url:
        return None
    return GroupStore(open_store(config.archive_url, access), folder_of(cluster, broker), clock)
