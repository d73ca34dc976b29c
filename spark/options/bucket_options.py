"""Which archives a query names, and how they are reached.  For every Python process of Spark: imports no client."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from sprocket.common.errors import ConfigError

BUCKET_OPTIONS: Final = (
    "objectStoreEndpoint",  # of a store that speaks S3; without it, AWS or what the environment says
    "objectStoreAccessKey",
    "objectStoreSecretKey",
)
_REMOTE: Final = re.compile(r"(s3|gs|az)://.+")
_LOCAL: Final = "file://"


@dataclass(frozen=True)
class BucketSettings:
    """URLs of the archives, and access to S3."""

    urls: tuple[str, ...]
    endpoint: str = ""
    access_key: str = ""
    secret_key: str = ""


def read_bucket_settings(given: Mapping[str, str], paths: Sequence[str]) -> BucketSettings | None:
    """Return the archives that `paths` name; None if they are store directories.  Raises ConfigError for a mixture."""
    urls = tuple(path for path in paths if is_archive(path))
    if not urls:
        astray = [name for name in BUCKET_OPTIONS if name in given]
        if astray:
            raise ConfigError(f"option {astray[0]!r} is for archives: name one in 'path', such as s3://bucket/folder")
        return None
    if len(urls) < len(paths):
        raise ConfigError("option 'path' names archives and store directories: read them by two queries, and join them")
    return BucketSettings(urls, *(given.get(name, "") for name in BUCKET_OPTIONS))


def is_archive(path: str) -> bool:
    """Return whether `path` names an archive: a bucket, or a directory of the form ``file:///...`` without a log."""
    if _REMOTE.fullmatch(path):
        return True
    folder = Path(path.removeprefix(_LOCAL))
    return (
        path.startswith(_LOCAL) and folder.is_dir() and any(folder.glob("manifest")) | any(folder.glob("*/*/manifest"))
    )
