"""Check of a backup: every file against its checksum, every record against its CRC."""

from pathlib import Path

from sprocket.common.errors import StoreError
from store.backup.copied_file import Progress, sha256_of
from store.backup.log_end import check_records
from store.backup.manifest import Manifest


def faults(backup: Path, manifest: Manifest, progress: Progress = lambda size_bytes: None) -> list[str]:
    """Return what is wrong with the files that `manifest` names, a line for each; empty if nothing is.  Never raises
    for a damaged file."""
    found = _chain_faults(manifest)
    for part in manifest.parts:
        path = backup / part.file
        try:
            size = path.stat().st_size
            if size != part.size_bytes:
                found.append(f"{part.file}: has {size} bytes, not {part.size_bytes}")
                continue
            if sha256_of(path, progress) != part.sha256:
                found.append(f"{part.file}: does not match its checksum")
            if part.start >= 0:
                check_records(path, part.start, manifest.segment_bytes, part.size_bytes)
        except StoreError as error:
            found.append(f"{part.file}: {error}")
        except OSError as error:
            found.append(f"{part.file}: {error.strerror or error}")
    return found


def _chain_faults(manifest: Manifest) -> list[str]:
    """Return where the segments leave a gap, or do not cover what the manifest says."""
    at, found = manifest.log_start, []
    for part in manifest.segments:
        if part.start != at:
            found.append(f"{part.file}: begins at {part.start}, not at {at}")
        at = part.start + part.size_bytes
    if at != manifest.log_end:
        found.append(f"the segments end at {at}, the backup at {manifest.log_end}")
    return found
