"""`sprocket store backup`, `verify` and `restore`: backups of a store, also of one that a broker uses."""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click

from sprocket.common.clock import SystemClock
from sprocket.common.errors import CorruptRecord
from sprocket_cli.client_session import HELP, CommandFailed, WrongUsage, json_option, print_found
from sprocket_cli.exit_codes import FAILURE, SUCCESS
from sprocket_cli.store.archive import is_url, restore_archive
from sprocket_cli.store.commands import DIRECTORY, progress_bar, shape_of, shape_options, size_text, store_errors
from store.backup.backup import Backup
from store.backup.manifest import BackupDamaged, Manifest, require
from store.backup.restore import restore as restored
from store.backup.verification import faults


@click.command(context_settings=HELP)
@click.argument("directory", type=DIRECTORY)
@click.option("--to", "target", type=DIRECTORY, required=True, help="Folder of the backup: new, empty or a backup.")
@click.option("--verify", "verified", is_flag=True, help="Afterwards check the whole backup, as `verify` does.")
@click.option("--allow-shorter", is_flag=True, help="Go on although the store has lost records that the backup has.")
@shape_options
@json_option
def backup(
    directory: Path, target: Path, verified: bool, allow_shorter: bool, config: Path | None, segment_bytes: int | None,
    as_json: bool,
) -> None:  # fmt: skip
    """Back up the store in DIRECTORY, also while a broker uses it.

    The backup holds the log up to a confirmed record, and the tables. The next backup to the same folder copies only
    new segments, and the open one. If it fails at any point, the previous backup is still valid.

    Exit status: 0 done, 1 the log or the backup is damaged, 2 DIRECTORY is no store, 74 refused for another reason.
    """
    shape = shape_of(config, segment_bytes)
    with store_errors(), _damage():
        with progress_bar("copying", _size_of(shape.commit_log or directory / "commitlog"), quiet=as_json) as progress:
            report = Backup(
                directory, target, SystemClock(), time.sleep,
                commit_log=shape.commit_log, segment_bytes=shape.segment_bytes,
                allow_shorter=allow_shorter, progress=progress,
            ).run()  # fmt: skip
        found = _faults(target, report.manifest, as_json) if verified else []
    manifest = report.manifest
    said = (
        f"backup {manifest.number} of {directory}: log {manifest.log_start} to {manifest.log_end}, "
        f"{len(manifest.segments)} segments, {len(manifest.tables)} tables; copied {report.copied_segments} of them"
        f" ({size_text(report.copied_bytes)})"
    )
    copied = {"copiedSegments": report.copied_segments, "copiedBytes": report.copied_bytes, "faults": found}
    print_found(_document(target, manifest) | copied, [said, *_damaged(found)], as_json=as_json)
    sys.exit(FAILURE if found else SUCCESS)


@click.command(context_settings=HELP)
@click.argument("folder", type=DIRECTORY)
@json_option
def verify(folder: Path, as_json: bool) -> None:
    """Check the backup in FOLDER: every file against its checksum, every record against its CRC.

    Exit status: 0 nothing is wrong, 1 the backup is damaged, 2 FOLDER is no backup, 74 it cannot be read.
    """
    with store_errors(), _damage():
        manifest = require(folder)
        found = _faults(folder, manifest, as_json)
    said = f"backup {manifest.number}: log {manifest.log_start} to {manifest.log_end}"
    lines = [said, *(_damaged(found) or ["nothing is wrong"])]
    print_found(_document(folder, manifest) | {"faults": found}, lines, as_json=as_json)
    sys.exit(FAILURE if found else SUCCESS)


@click.command(context_settings=HELP)
@click.argument("source", metavar="FOLDER|URL")
@click.argument("directory", type=DIRECTORY, required=False)
@click.option("--to", "target", type=DIRECTORY, help="Folder of the new store, instead of DIRECTORY; new or empty.")
@json_option
def restore(source: str, directory: Path | None, target: Path | None, as_json: bool) -> None:
    """Make a store in DIRECTORY from the backup in FOLDER, or from the archive at URL, such as s3://bucket/folder.

    The first start of its broker builds queues and index from the log. From an archive the log is restored up to the
    last uploaded message, and the command says what is missing.

    Exit status: 0 done, 1 the backup is damaged, 2 FOLDER is no backup, 74 the store cannot be written.
    """
    if (directory is None) == (target is None):
        raise WrongUsage("name the folder of the new store once: as the second argument, or with --to")
    target = directory or target
    assert target is not None
    if is_url(source):
        restore_archive(source, target, as_json=as_json)
        return
    folder = Path(source)
    with store_errors(), _damage():
        total = sum(part.size_bytes for part in require(folder).parts)
        with progress_bar("restoring", total, quiet=as_json) as progress:
            manifest = restored(folder, target, progress)
    said = f"{target}: log {manifest.log_start} to {manifest.log_end}; start a broker on this storePathRootDir"
    print_found(_document(folder, manifest) | {"store": str(target)}, [said], as_json=as_json)


@contextmanager
def _damage() -> Iterator[None]:
    """Turn damage of a log or a backup into a message and exit status 1."""
    try:
        yield
    except (BackupDamaged, CorruptRecord) as error:
        raise CommandFailed(str(error)) from None


def _size_of(commit_log: Path) -> int:
    return sum(path.stat().st_size for path in commit_log.glob("*")) if commit_log.is_dir() else 0


def _faults(folder: Path, manifest: Manifest, as_json: bool) -> list[str]:
    total = sum(part.size_bytes for part in manifest.parts)
    with progress_bar("verifying", total, quiet=as_json) as progress:
        return faults(folder, manifest, progress)


def _damaged(found: list[str]) -> list[str]:
    return [f"damaged: {line}" for line in found]


def _document(folder: Path, manifest: Manifest) -> dict[str, object]:
    return {
        "backup": str(folder),
        "number": manifest.number,
        "createdMs": manifest.created_ms,
        "logStart": manifest.log_start,
        "logEnd": manifest.log_end,
        "segments": len(manifest.segments),
        "tables": [part.name for part in manifest.tables],
    }
