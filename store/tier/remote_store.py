"""Object stores of S3, GCS and Azure, of a directory, and of memory, through obstore.

A URL says where: ``s3://bucket/folder``, ``gs://bucket/folder``, ``az://account/container/folder``,
``file:///folder``, ``memory:///``.  Credentials come from the environment, as the vendors' own tools read them
(AWS_ACCESS_KEY_ID, AWS_ENDPOINT_URL, GOOGLE_APPLICATION_CREDENTIALS, AZURE_STORAGE_ACCOUNT_KEY ...), or from RocketMQ's
keys objectStoreEndpoint, objectStoreAccessKey and objectStoreSecretKey.

`put_if` is fenced on every one of them.  S3, GCS and Azure compare the version in the request (If-Match, If-None-Match;
stores that speak S3 must support both, as MinIO, R2 and Ceph do).  For a directory obstore has no such operation, so
all writers take turns by a lock of the file system: that holds for processes of one machine, and over NFS 4.
"""

import asyncio
import fcntl
import os
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote, urlsplit

from sprocket.common.errors import ConfigError
from sprocket.common.extras import missing_package
from store.tier.object_store import (
    Conflict,
    Damaged,
    Full,
    NotFound,
    ObjectInfo,
    ObjectStoreError,
    Refused,
    StoredObject,
    Unavailable,
    Version,
)

if TYPE_CHECKING:
    from obstore.store import ObjectStore as Client

SCHEMES: Final = ("s3", "gs", "az", "file", "memory")
# Where the environment names the server, if it is not the vendor's.
_ENDPOINTS: Final = {"s3": "AWS_ENDPOINT_URL", "gs": "GOOGLE_BASE_URL"}
# Pieces of an upload in parts: S3 wants at least 5 MiB.  Memory of one upload is a few times this.
_PART_BYTES: Final = 8 << 20
_PARTS_AT_ONCE: Final = 3
_STREAM_BYTES: Final = 4 << 20
_LOCK_SUFFIX: Final = ".lock"
# obstore tells these errors apart by their texts alone.  The first kind whose words are found counts.
_SAID: Final[dict[type[ObjectStoreError], tuple[str, ...]]] = {
    Full: ("No space left", "Disk quota exceeded", "QuotaExceeded", "InsufficientCapacity", "507 Insufficient"),
    Damaged: ("416 Range Not Satisfiable", "Invalid range", "range was invalid"),
    Refused: (
        "NoSuchBucket", "ContainerNotFound", "specified bucket does not exist", "403 Forbidden", "401 Unauthorized",
        "400 Bad Request", "Read-only file", "Permission denied",
    ),
}  # fmt: skip
# Limit of a whole download over a slow link.  A store that sends nothing fails much sooner.
_MAX_REQUEST_S: Final = 3600.0


@dataclass(frozen=True)
class Access:
    """How to reach a store, and its longest silence.  Empty fields are left to the environment."""

    endpoint: str = ""
    access_key: str = ""
    secret_key: str = ""
    region: str = ""
    timeout_s: float = 30.0
    max_retries: int = 2


def writes_of(size_bytes: int, *, is_stream: bool) -> int:
    """Return how many requests `RemoteStore.put` makes for an object: one, or begin, parts and end of an upload."""
    return 2 + max(1, -(-size_bytes // _PART_BYTES)) if is_stream or size_bytes > _PART_BYTES else 1


def open_store(url: str, access: Access | None = None) -> "RemoteStore":
    """Return the store at `url`.  Makes no request.  Raises `ConfigError` that says what is wrong with the URL."""
    try:
        import obstore  # noqa: F401  # only to say what is missing
    except ImportError as error:
        raise ConfigError(missing_package(error, "tiered storage") or str(error)) from error
    parts = urlsplit(url)
    if parts.scheme not in SCHEMES or (parts.scheme not in ("file", "memory") and not parts.netloc):
        raise ConfigError(f"{url}: is not the address of an object store, such as s3://bucket/folder or file:///folder")
    if parts.scheme == "file":
        return DirectoryStore(Path(unquote(parts.path)))
    return RemoteStore(_client(url, parts.scheme, access or Access()))


def _client(url: str, scheme: str, access: Access) -> "Client":
    from obstore.exceptions import BaseError
    from obstore.store import AzureStore, MemoryStore, from_url

    if scheme == "memory":
        return MemoryStore()
    config: Any = {}
    if scheme == "s3":
        found = {
            "aws_endpoint": access.endpoint,
            "aws_access_key_id": access.access_key,
            "aws_secret_access_key": access.secret_key,
            "aws_region": access.region,
        }
        config = {name: value for name, value in found.items() if value}
    elif access.endpoint or access.access_key or access.secret_key:
        raise ConfigError(
            f"{url}: objectStoreEndpoint and the keys beside it are for s3://; others use the environment"
        )
    endpoint = access.endpoint or os.environ.get(_ENDPOINTS.get(scheme, ""), "")
    options: Any = {
        "timeout": timedelta(seconds=_MAX_REQUEST_S),
        "read_timeout": timedelta(seconds=access.timeout_s),
        "connect_timeout": timedelta(seconds=min(5.0, access.timeout_s)),
        "allow_http": endpoint.startswith("http://"),
    }
    retries: Any = {"max_retries": access.max_retries, "retry_timeout": timedelta(seconds=access.timeout_s)}
    try:
        if scheme == "az":
            account, container, folder = _azure_place(url)
            return AzureStore(
                container, prefix=folder or None, account_name=account, client_options=options, retry_config=retries
            )  # fmt: skip
        return from_url(url, config=config or None, client_options=options, retry_config=retries)
    except (BaseError, ValueError) as error:
        raise ConfigError(f"{url}: {_first_line(error)}") from error


def _azure_place(url: str) -> tuple[str, str, str]:
    """Return account, container and folder.  obstore would take the account for the container."""
    parts = urlsplit(url)
    container, _, folder = parts.path.strip("/").partition("/")
    if not container:
        raise ConfigError(f"{url}: names no container: az://account/container/folder")
    return parts.netloc, container, unquote(folder)


class RemoteStore:
    """The protocol `store.tier.object_store.ObjectStore` over a client of obstore.  For one event loop."""

    def __init__(self, client: "Client") -> None:
        self._client = client

    async def put(self, key: str, content: bytes | AsyncIterator[bytes]) -> None:
        with _translated(key):
            await self._client.put_async(key, content, chunk_size=_PART_BYTES, max_concurrency=_PARTS_AT_ONCE)

    async def put_if(self, key: str, content: bytes, expected: Version | None) -> Version:
        with _translated(key):
            result = await self._client.put_async(key, content, mode=_mode(expected))
        return Version(result["e_tag"], result["version"])

    async def get(self, key: str, max_bytes: int) -> StoredObject:
        with _translated(key):
            result = await self._client.get_async(key)
            info = result.meta
            pieces, size_bytes = [], 0
            async for piece in result.stream(min_chunk_size=_STREAM_BYTES):
                size_bytes += len(piece)
                if size_bytes > max_bytes:
                    raise Damaged(f"{key}: has {info['size']} bytes, at most {max_bytes} are read")
                pieces.append(bytes(piece))
        if size_bytes != info["size"]:
            raise Unavailable(f"{key}: {size_bytes} bytes came of {info['size']}")
        return StoredObject(b"".join(pieces), Version(info["e_tag"], info["version"]))

    async def get_range(self, key: str, start: int, end: int) -> bytes:
        with _translated(key):
            found = bytes(await self._client.get_range_async(key, start=start, end=end))
        if len(found) != end - start:
            raise Damaged(f"{key}: {len(found)} bytes came of {start} to {end}: the object is shorter or changed")
        return found

    async def stream(self, key: str) -> AsyncIterator[bytes | memoryview]:
        with _translated(key):
            result = await self._client.get_async(key)
            left = result.meta["size"]
            async for piece in result.stream(min_chunk_size=_STREAM_BYTES):
                left -= len(piece)
                yield memoryview(piece)  # a copy of some MiB would hold the interpreter's lock
        if left:
            raise Unavailable(f"{key}: ended {left} bytes before its end")

    async def head(self, key: str) -> ObjectInfo:
        with _translated(key):
            return _info(await self._client.head_async(key))

    async def list(self, prefix: str) -> AsyncIterator[ObjectInfo]:
        with _translated(prefix):
            async for chunk in self._client.list(prefix=prefix):
                for one in chunk:
                    if not one["path"].endswith(_LOCK_SUFFIX):
                        yield _info(one)

    async def delete(self, key: str) -> None:
        try:
            with _translated(key):
                await self._client.delete_async(key)
        except NotFound:
            return


class DirectoryStore(RemoteStore):
    """A directory as an object store.  What it acknowledges is synced."""

    def __init__(self, root: Path) -> None:
        from obstore.store import LocalStore

        self._root = root
        with _translated(str(root)):
            super().__init__(LocalStore(root, mkdir=True))

    async def put(self, key: str, content: bytes | AsyncIterator[bytes]) -> None:
        await super().put(key, content)
        await asyncio.to_thread(self._sync, key)

    async def put_if(self, key: str, content: bytes, expected: Version | None) -> Version:
        return await asyncio.to_thread(self._put_if, key, content, expected)

    def _put_if(self, key: str, content: bytes, expected: Version | None) -> Version:
        with _translated(key), self._locked(key):
            if expected is None:
                result = self._client.put(key, content, mode="create")
            else:
                try:
                    found = self._client.head(key)["e_tag"]
                except FileNotFoundError:
                    found = None
                if found != expected.e_tag:
                    raise Conflict(f"{key}: is version {found}, not {expected.e_tag}")
                result = self._client.put(key, content)
            self._sync(key)
        return Version(result["e_tag"], None)

    @contextmanager
    def _locked(self, key: str) -> Iterator[None]:
        path = self._root / (key + _LOCK_SUFFIX)
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)

    def _sync(self, key: str) -> None:
        """Make an object durable, with its names."""
        path = self._root / key
        with _translated(key):
            for one in (path, *(folder for folder in path.parents if folder.is_relative_to(self._root))):
                descriptor = os.open(one, os.O_RDONLY | os.O_CLOEXEC)
                try:
                    os.fsync(descriptor)
                finally:
                    os.close(descriptor)


def _mode(expected: Version | None) -> Any:
    if expected is None:
        return "create"
    return {name: value for name, value in expected._asdict().items() if value is not None}


def _info(found: Any) -> ObjectInfo:
    version = Version(found["e_tag"], found["version"])
    return ObjectInfo(found["path"], found["size"], version, int(found["last_modified"].timestamp() * 1000))


@contextmanager
def _translated(key: str) -> Iterator[None]:
    """Raise errors of obstore as this package's."""
    from obstore import exceptions

    try:
        yield
    except ObjectStoreError:
        raise
    except (exceptions.BaseError, OSError, NotImplementedError) as error:
        kind = _kind(error)
        raise kind(f"{key}: {'is not there' if kind is NotFound else _first_line(error)}") from error


def _kind(error: Exception) -> type[ObjectStoreError]:
    from obstore import exceptions as known

    if isinstance(error, known.AlreadyExistsError | known.PreconditionError):
        return Conflict
    text = str(error)
    for kind, words in _SAID.items():
        if any(word in text for word in words):
            return kind
    if isinstance(error, FileNotFoundError):
        return NotFound
    is_refused = isinstance(error, known.PermissionDeniedError | known.UnauthenticatedError | known.InvalidPathError)
    return Refused if is_refused else Unavailable


def _first_line(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0][:300]
