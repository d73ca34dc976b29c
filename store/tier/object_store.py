"""What tiered storage needs of an object store, and nothing more.

Keys are relative to the root of one bucket, or of a folder in it: words of letters, digits, ``%``, ``.``, ``_`` and
``-`` between slashes.  An object appears whole or not at all, and a read after a write sees it (S3, GCS and Azure
promise both).  `put_if` is the only operation that two writers may race for: the store decides who is first.

Every error is one of this module's.  `store.tier.remote_store` implements the protocol for real stores.
"""

from collections.abc import AsyncIterator
from typing import NamedTuple, Protocol

from sprocket.common.errors import StoreError


class ObjectStoreError(StoreError):
    """A request to the object store failed.  After a write that failed, the object may be there or not."""


class NotFound(ObjectStoreError):
    """There is no object of this key."""


class Conflict(ObjectStoreError):
    """A conditional put found another version of the object than the expected one."""


class Unavailable(ObjectStoreError):
    """The store did not answer, answered 5xx, or cut the answer short.  A later try may succeed."""


class Full(ObjectStoreError):
    """The store has no room for the object."""


class Refused(ObjectStoreError):
    """The store refused the request for its credentials, its permissions or its form: an operator must act."""


class Damaged(ObjectStoreError):
    """An object is not what was written there: its size, its hash or its form is wrong."""


class Version(NamedTuple):
    """One version of an object, for `ObjectStore.put_if`.  Opaque: which of the fields counts differs by store."""

    e_tag: str | None
    version: str | None = None


class ObjectInfo(NamedTuple):
    """What the store says about an object; `modified_ms` is the store's own clock."""

    key: str
    size_bytes: int
    version: Version
    modified_ms: int


class StoredObject(NamedTuple):
    """Content of a small object, and its version."""

    content: bytes
    version: Version


class ObjectStore(Protocol):
    """One bucket, or a folder in it.  Methods may run at the same time; each raises an `ObjectStoreError`."""

    async def put(self, key: str, content: bytes | AsyncIterator[bytes]) -> None:
        """Write an object, in parts if `content` comes in parts.  The last writer wins."""
        ...

    async def put_if(self, key: str, content: bytes, expected: Version | None) -> Version:
        """Write an object if its version is `expected`; None: if there is no object.  Return the new version.

        Raises `Conflict`.  After another error, only a read tells whether the object was written.
        """
        ...

    async def get(self, key: str, max_bytes: int) -> StoredObject:
        """Return a whole object.  Raises `NotFound`, or `Damaged` if it has more than `max_bytes`."""
        ...

    async def get_range(self, key: str, start: int, end: int) -> bytes:
        """Return exactly the bytes [`start`, `end`) of an object.  Raises `NotFound`, or `Damaged` if it is shorter."""
        ...

    def stream(self, key: str) -> AsyncIterator[bytes | memoryview]:
        """Return a whole object in pieces of some MiB.  Raises `NotFound`."""
        ...

    async def head(self, key: str) -> ObjectInfo:
        """Return what the store says about an object.  Raises `NotFound`."""
        ...

    def list(self, prefix: str) -> AsyncIterator[ObjectInfo]:
        """Return the objects whose keys begin with `prefix`, a folder without its last slash, in no certain order."""
        ...

    async def delete(self, key: str) -> None:
        """Delete an object.  One that is not there is ignored."""
        ...
