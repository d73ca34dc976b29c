"""The archive that a command or a reader without a broker names by its URL."""

from dataclasses import dataclass
from typing import Final

from sprocket.common.errors import StoreError
from store.tier.manifest import MAX_BYTES, NAME, Manifest, decode
from store.tier.object_store import NotFound, ObjectStore, Version
from store.tier.remote_store import Access, open_store

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
    objects = open_store(url, access)
    try:
        found = await objects.get(NAME, MAX_BYTES)
    except NotFound:
        folders = await group_folders(url, access)
        if len(folders) == 1:
            return await open_archive(f"{url.rstrip('/')}/{folders[0]}", access)
        if not folders:
            raise StoreError(f"{url}: is no store and no archive: there is no {NAME} in it, nor below it") from None
        listed = ", ".join(folders[:_MAX_LISTED])
        raise StoreError(f"{url}: has the archives of {len(folders)} groups; name one: {listed}") from None
    return OpenArchive(url, objects, decode(found.content), found.version)


async def group_folders(url: str, access: Access | None = None) -> list[str]:
    """Return the folders of all groups below `url`."""
    found = [info.key async for info in open_store(url, access).list("") if info.key.endswith(_SUFFIX)]
    return sorted(key.removesuffix(_SUFFIX) for key in found)
