"""An object store in memory that fails, delays, repeats and lies as a seed says, and dies at a chosen request."""

import asyncio
import random
from collections.abc import AsyncIterator

from store.tier.object_store import (
    Conflict,
    Damaged,
    Full,
    NotFound,
    ObjectInfo,
    ObjectStoreError,
    StoredObject,
    Unavailable,
    Version,
)


class Killed(Exception):
    """The broker's process ends here."""


class FakeBucket:
    """What is in the bucket, for any number of clients."""

    def __init__(self) -> None:
        self.objects: dict[str, tuple[bytes, int]] = {}
        self.versions = 0
        self.is_full = False
        # Writes that were sent and have not arrived yet.
        self.late: list[tuple[str, bytes, Version | None, bool]] = []

    def write(self, key: str, content: bytes, expected: Version | None, *, is_conditional: bool) -> Version:
        if self.is_full:
            raise Full(f"{key}: no room")
        found = self.objects.get(key)
        if is_conditional and (expected is None) != (found is None):
            raise Conflict(f"{key}: is {found and found[1]}")
        if is_conditional and expected is not None and found is not None and expected != Version(str(found[1])):
            raise Conflict(f"{key}: is version {found[1]}, not {expected}")
        self.versions += 1
        self.objects[key] = content, self.versions
        return Version(str(self.versions))

    def deliver(self) -> None:
        """Let one late write arrive."""
        key, content, expected, is_conditional = self.late.pop(0)
        try:
            self.write(key, content, expected, is_conditional=is_conditional)
        except ObjectStoreError:
            return


class FakeStore:
    """One client's view of a bucket.  `faults` is the share of requests that go wrong."""

    def __init__(
        self, bucket: FakeBucket, random_: random.Random, *, faults: float = 0.0, dies_at: int | None = None
    ) -> None:
        self.bucket = bucket
        self._random, self._faults = random_, faults
        self.dies_at = dies_at
        self.requests = 0

    async def _turn(self) -> str:
        """Return what happens to the next request."""
        self.requests += 1
        for _ in range(self._random.randrange(3)):
            await asyncio.sleep(0)
        if self.bucket.late and self._random.random() < 0.3:
            self.bucket.deliver()
        if self._random.random() < self._faults:
            return self._random.choice(["refused", "answer lost", "late", "short"])
        return "ok"

    def _die(self, *, is_after: bool) -> None:
        # Twice for each request: before it has an effect, and after.
        if self.dies_at is not None and self.requests * 2 - (not is_after) >= self.dies_at:
            raise Killed

    async def put(self, key: str, content: bytes | AsyncIterator[bytes]) -> None:
        whole = content if isinstance(content, bytes) else b"".join([piece async for piece in content])
        await self.arrive(key, whole, None, is_conditional=False)

    async def put_if(self, key: str, content: bytes, expected: Version | None) -> Version:
        return await self.arrive(key, content, expected, is_conditional=True)

    async def arrive(self, key: str, content: bytes, expected: Version | None, *, is_conditional: bool) -> Version:
        fate = await self._turn()
        self._die(is_after=False)
        if fate == "refused":
            raise Unavailable(f"{key}: 503")
        if fate == "late":
            self.bucket.late.append((key, content, expected, is_conditional))
            raise Unavailable(f"{key}: timed out")
        version = self.bucket.write(key, content, expected, is_conditional=is_conditional)
        self._die(is_after=True)
        if fate == "answer lost":
            raise Unavailable(f"{key}: connection reset")
        return version

    async def _read(self, key: str) -> tuple[bytes, int, bool]:
        fate = await self._turn()
        self._die(is_after=False)
        if fate in ("refused", "late", "answer lost"):
            raise Unavailable(f"{key}: 503")
        found = self.bucket.objects.get(key)
        if found is None:
            raise NotFound(f"{key}: is not there")
        return *found, fate == "short"

    async def get(self, key: str, max_bytes: int) -> StoredObject:
        content, version, is_short = await self._read(key)
        if is_short:
            raise Unavailable(f"{key}: ended early")
        if len(content) > max_bytes:
            raise Damaged(f"{key}: has {len(content)} bytes")
        return StoredObject(content, Version(str(version)))

    async def get_range(self, key: str, start: int, end: int) -> bytes:
        content, _, is_short = await self._read(key)
        if is_short or end > len(content):
            raise Damaged(f"{key}: is shorter")
        return content[start:end]

    async def stream(self, key: str) -> AsyncIterator[bytes]:
        content, _, is_short = await self._read(key)
        # A store that lies: it ends early and says nothing.
        content = content[: len(content) // 2] if is_short else content
        for start in range(0, len(content), 4096):
            yield content[start : start + 4096]

    async def head(self, key: str) -> ObjectInfo:
        content, version, _ = await self._read(key)
        return ObjectInfo(key, len(content), Version(str(version)), 0)

    async def list(self, prefix: str) -> AsyncIterator[ObjectInfo]:
        for key, (content, version) in sorted(self.bucket.objects.items()):
            if key.startswith(prefix + "/") or not prefix:
                yield ObjectInfo(key, len(content), Version(str(version)), 0)

    async def delete(self, key: str) -> None:
        fate = await self._turn()
        self._die(is_after=False)
        if fate == "refused":
            raise Unavailable(f"{key}: 503")
        self.bucket.objects.pop(key, None)
        self._die(is_after=True)
