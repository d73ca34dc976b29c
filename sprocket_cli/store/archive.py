"""`sprocket store restore` and `check` of an archive in an object store."""

import sys
from pathlib import Path

import click

from sprocket.common.clock import SystemClock
from sprocket_cli.client_session import CommandFailed, print_json, wrong_usage
from sprocket_cli.exit_codes import FAILURE, SUCCESS
from sprocket_cli.processes import interrupts
from sprocket_cli.store.commands import progress_bar, size_text, store_errors
from store.tier.archive_check import ArchiveCheck, repair
from store.tier.manifest_rebuild import ManifestRebuild, group_in, is_gone
from store.tier.object_store import Damaged
from store.tier.open_archive import open_archive
from store.tier.remote_store import open_store
from store.tier.restore import ArchiveRestore
from store.tier.whole_objects import SEGMENTS


def is_url(text: str) -> bool:
    """Return whether `text` names an archive, not a directory."""
    return "://" in text


def restore_archive(url: str, target: Path, *, as_json: bool) -> None:
    """Make a store from the archive at `url`, and say what is missing in it."""
    interrupts.run(_restore(url, target, as_json))


async def _restore(url: str, target: Path, as_json: bool) -> None:
    with store_errors(), wrong_usage():
        try:
            archive = await open_archive(url)
            manifest = archive.manifest
            total = sum(segment.size_bytes for segment in manifest.segments)
            with progress_bar("restoring", total, quiet=as_json) as progress:
                restored = await ArchiveRestore(archive.objects, manifest, target, progress).run()
        except Damaged as error:
            raise CommandFailed(f"{error}. `sprocket store check {url}` says what else is damaged") from None
    if as_json:
        print_json(
            {
                "archive": archive.url, "store": str(target), "cluster": manifest.cluster, "broker": manifest.broker,
                "logStart": restored.log_start, "logEnd": restored.log_end, "messages": restored.records,
                "lastStoreTimestamp": restored.last_store_ms, "tables": restored.tables, "missing": restored.missing(),
            }
        )  # fmt: skip
        return
    click.echo(
        f"{target}: broker {manifest.broker} of {manifest.cluster}, log {restored.log_start} to {restored.log_end}, "
        f"{restored.records} messages; start a broker on this storePathRootDir"
    )
    for line in restored.missing():
        click.echo(f"missing: {line}")


def check_archive(url: str, *, quick: bool, repairs: bool, segment_bytes: int | None, as_json: bool) -> None:
    """Check the archive at `url`, and end with the exit status."""
    is_sound = interrupts.run(_check(url, quick, repairs, segment_bytes, as_json))
    sys.exit(SUCCESS if is_sound else FAILURE)


async def _rebuilt(url: str, repairs: bool, segment_bytes: int | None, as_json: bool) -> list[str] | None:
    """Make a new manifest if there is none, and return what it lacks; return None if there is one."""
    objects = open_store(url)
    if not await is_gone(objects):
        return None
    if not repairs:
        raise CommandFailed(
            f"{url}: the manifest is gone, and there are segments: bring it back from the versions that the bucket "
            f"keeps, or make one of the objects: sprocket store check {url} --repair"
        )
    total = sum([info.size_bytes async for info in objects.list(SEGMENTS)])
    with progress_bar("rebuilding", total, quiet=as_json) as progress:
        rebuild = ManifestRebuild(objects, group_in(url), segment_bytes, progress)
        await rebuild.run(SystemClock().wall_ms())
    return rebuild.missing


async def _check(url: str, quick: bool, repairs: bool, segment_bytes: int | None, as_json: bool) -> bool:
    with store_errors():
        with wrong_usage():
            missing = await _rebuilt(url, repairs, segment_bytes, as_json)
            archive = await open_archive(url)
        quick = quick or missing is not None  # a rebuild has just read everything
        manifest = archive.manifest
        total = 0 if quick else sum(segment.size_bytes for segment in manifest.segments)
        with progress_bar("checking", total, quiet=as_json) as progress:
            check = ArchiveCheck(archive.objects, manifest, quick=quick, progress=progress)
            await check.run()
        is_repaired = bool(repairs and check.lost)
        if is_repaired:
            await repair(archive.objects, manifest, archive.version, check.lost, SystemClock().wall_ms())
    findings = check.findings
    if as_json:
        print_json(
            {
                "archive": archive.url, "ok": findings.is_fine, "quick": quick, "segments": len(manifest.segments),
                "uploadedEnd": manifest.uploaded_end, "unnamed": [info.key for info in check.unnamed],
                "repaired": is_repaired, "rebuiltWithout": missing, "suppressed": findings.suppressed(),
                "findings": [finding.document() for finding in findings.kept],
            }
        )  # fmt: skip
        return findings.is_fine
    stored = sum(segment.size_bytes for segment in manifest.segments)
    click.echo(
        f"{archive.url}: broker {manifest.broker} of {manifest.cluster}; {len(manifest.segments)} segments of "
        f"{size_text(stored)}, uploaded up to {manifest.uploaded_end}"
    )
    if missing is not None:
        click.echo("rebuilt: the manifest was gone, and was made of the objects. It lacks:")
        for line in missing:
            click.echo(f"missing: {line}")
        click.echo("next: restart the group's master, which claims this manifest and goes on with it")
    for finding in findings.kept:
        click.echo(f"{finding.severity}: {finding.path}: {finding.text}")
        if finding.repair:
            click.echo(f"      repair: {finding.repair}")
    if is_repaired:
        click.echo(f"repaired: the manifest names {len(check.lost)} objects less")
    elif check.lost:
        click.echo(f"to repair the manifest: sprocket store check {url} --repair")
    if findings.is_fine:
        click.echo("nothing is wrong")
    return findings.is_fine
