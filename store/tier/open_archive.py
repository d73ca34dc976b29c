"""The archive that a command or a reader without a broker names by its URL."""

from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from sprocket.common.errors import StoreError
from store.tier.manifest import NAME, Manifest
from store.tier.object_store import NotFound, ObjectStore, Version
from store.tier.remote_store import Access, open_store
from store.tier.whole_objects import read_manifest

_SUFFIX: Final = f"/{NAME}"
_MAX_LISTED: Final = 20


@dataclass(frozen=True)
class OpenArchive:
    """The folder of one broker group, and its manifest as it was read."""

    url: str
    objects: ObjectStore
    manifest: Manifest
    version: Version


async def open_archive(url: str, access: Access | None = None) -> OpenArchive:
    """Return the archive at `url`: a broker group's folder, or a folder above it that has no other group.

    Raises `StoreError` that says what is there, `ConfigError` for a wrong URL, and an `ObjectStoreError`.
    """
    with suppress(NotFound):
        return await _opened(url, access)
    folders = await _groups_below(url, access)
    if len(folders) == 1:
        return await _opened(folders[0], access)
    listed = ", ".join(folder.removeprefix(f"{url.rstrip('/')}/") for folder in folders[:_MAX_LISTED])
    raise StoreError(f"{url}: has the archives of {len(folders)} groups; name one: {listed}")


async def open_archives(url: str, access: Access | None = None) -> list[OpenArchive]:
    """Return the archive at `url`, or those of all groups below it.  Raises as `open_archive`."""
    with suppress(NotFound):
        return [await _opened(url, access)]
    return [await _opened(folder, access) for folder in await _groups_below(url, access)]


async def _opened(url: str, access: Access | None) -> OpenArchive:
    objects = open_store(url, access)
    return OpenArchive(url, objects, *await read_manifest(objects))


async def _groups_below(url: str, access: Access | None) -> list[str]:
    """Return the URLs of all groups' folders below `url`, at least one.  Lists all objects there."""
    found = [info.key async for info in open_store(url, access).list("") if info.key.endswith(_SUFFIX)]
    if not found:
        raise StoreError(f"{url}: is no store and no archive: there is no {NAME} in it, nor below it")
    return sorted(f"{url.rstrip('/')}/{key.removesuffix(_SUFFIX)}" for key in found)
