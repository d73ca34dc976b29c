"""Tables of a store that a backup keeps, from their saved files.

Files that count in offsets of the log are read before the backup's end is fixed, so they are never ahead of its log.
Definitions (topics, groups, users) are read after it, so every topic with a message in the log has its definition.
"""

from pathlib import Path
from typing import Final

from sprocket.common.errors import StoreError
from store.inspection.file_view import list_directory, read_small
from store.inspection.small_files import json_of

# In the store's root: offsets of the log, in Sprocket's own files and the epochs of masters.
_ROOT_FILES: Final = ("queuelist", "deletedtopics", "epochFileCheckpoint")
_DEFINITIONS: Final = (
    "topics.json", "subscriptionGroup.json", "auth.json", "plain_acl.yml", "messageRequestMode.json",
    "consumerFilter.json", "topicQueueMapping.json",
)  # fmt: skip
# The id of a running store, and the broker's id at its controllers: a restored store gets its own.
_LEFT_OUT: Final = ("haStore.json",)
_CONFIG: Final = "config"


def offset_tables(root: Path) -> dict[str, bytes]:
    """Return path in the store -> content of the files that count in offsets.  Raises `StoreError`."""
    found = {}
    for name in _ROOT_FILES:
        content = read_small(root / name)
        if content is not None:
            found[name] = content
    names = [name for name in _table_names(root) if name not in _DEFINITIONS]
    return found | _read(root, names)


def definition_tables(root: Path) -> dict[str, bytes]:
    """Return path in the store -> content of topics, groups and users.  Raises `StoreError`."""
    return _read(root, [name for name in _table_names(root) if name in _DEFINITIONS])


def _table_names(root: Path) -> list[str]:
    names = []
    for name, is_directory, _ in list_directory(root / _CONFIG):
        base = name.removesuffix(".bak")
        # Of a file that a crash left only as .bak, the broker reads that.
        if not is_directory and not name.endswith(".tmp") and base not in _LEFT_OUT and base not in names:
            names.append(base)
    return names


def _read(root: Path, names: list[str]) -> dict[str, bytes]:
    found = {}
    for name in names:
        path = root / _CONFIG / name
        backup = path.with_name(name + ".bak")
        if name.endswith(".json"):
            path = next((one for one in (path, backup) if json_of(one) is not None), path)
            if json_of(path) is None and read_small(path):
                raise StoreError(f"{path}: is not a JSON object, and has no .bak that is one; see sprocket store check")
        content = read_small(path)
        if content is not None:
            found[f"{_CONFIG}/{name}"] = content
    return found
