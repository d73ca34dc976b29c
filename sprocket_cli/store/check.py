"""`sprocket store check`: reports damage of a store directory, and changes nothing."""

import sys
from pathlib import Path

import click

from sprocket_cli.client_session import HELP, WrongUsage, json_option, print_found
from sprocket_cli.exit_codes import FAILURE, SUCCESS
from sprocket_cli.store.archive import check_archive, is_url
from sprocket_cli.store.commands import progress_bar, shape_of, shape_options, size_text, store_errors
from store.inspection.store_inspection import StoreInspection

_SHOWN = 40


@click.command(context_settings=HELP)
@click.argument("place", metavar="DIRECTORY|URL")
@click.option("--quick", is_flag=True, help="Check only the ends of log and queues; takes seconds for any size.")
@click.option(
    "--repair", "repairs", is_flag=True, help="Of an archive: forget what cannot be read; rebuild a lost manifest."
)
@shape_options
@json_option
def check(
    place: str, quick: bool, repairs: bool, config: Path | None, segment_bytes: int | None, as_json: bool
) -> None:
    """Check every file of the store in DIRECTORY, or every object of the archive at URL.  Nothing is written.

    Each record is compared with its CRC. Every ConsumeQueue and index file is compared with the log in both directions.

    Of an archive, such as s3://bucket/folder, each object is compared with its hash; --quick looks at sizes and
    footers only. Objects that the manifest does not name are listed. With --repair the manifest forgets segments that
    are damaged or missing; if there is no manifest, a new one is made from the objects, where they leave no doubt.

    Exit status: 0 nothing is wrong, 1 damage was found, 2 DIRECTORY is no store, 74 it cannot be read.
    """
    if is_url(place):
        shape = shape_of(config, segment_bytes)
        check_archive(place, quick=quick, repairs=repairs, segment_bytes=shape.segment_bytes, as_json=as_json)
    if repairs:
        raise WrongUsage("--repair is for an archive; a store directory has `sprocket store repair`")
    directory = Path(place)
    with store_errors():
        inspection = StoreInspection(directory, shape_of(config, segment_bytes), quick=quick)
        total = 0 if quick else inspection.total_bytes
        with progress_bar("checking", total, quiet=as_json) as progress:
            inspection.run(progress)
    print_found(document(inspection), lines(inspection), as_json=as_json)
    sys.exit(SUCCESS if inspection.findings.is_fine else FAILURE)


def document(inspection: StoreInspection) -> dict[str, object]:
    """Return the result for programs."""
    figures, findings = inspection.figures, inspection.findings
    return {
        "store": str(inspection.root),
        "ok": findings.is_fine,
        "inUse": inspection.is_running,
        "quick": inspection.quick,
        "stoppedCleanly": inspection.was_clean or inspection.is_running,
        "log": {
            "segments": len(inspection.log.parts),
            "segmentBytes": inspection.log.file_bytes,
            "minOffset": figures.start,
            "maxOffset": figures.end,
            "walkedFrom": figures.walked_from,
            "records": figures.records,
        },
        "queues": len(inspection.queues.by_key),
        "batchQueues": len(inspection.batch_queues.by_key),
        "compactedQueues": len(inspection.compacted.queues),
        "indexFiles": len(inspection.index.files),
        "findings": [finding.document() for finding in findings.kept],
        "suppressed": findings.suppressed(),
    }


def lines(inspection: StoreInspection) -> list[str]:
    """Return the result for people."""
    figures, findings, log = inspection.figures, inspection.findings, inspection.log
    state = "in use by a broker: checked up to its end at the start of the check" if inspection.is_running else (
        "stopped cleanly" if inspection.was_clean else "not stopped cleanly"
    )  # fmt: skip
    walked = size_text(max(0, figures.end - figures.walked_from))
    said = [
        f"{inspection.root}: {state}",
        f"log: {len(log.parts)} segments of {size_text(log.file_bytes)}, offsets {figures.start} to {figures.end}; "
        f"{figures.records} records in {walked} checked",
        f"queues: {len(inspection.queues.by_key)}, batch queues: {len(inspection.batch_queues.by_key)}, "
        f"compacted queues: {len(inspection.compacted.queues)}, "
        f"index files: {len(inspection.index.files)}{', their ends checked' if inspection.quick else ''}",
    ]
    for finding in findings.kept[:_SHOWN]:
        place = finding.path if finding.offset is None else f"{finding.path} at {finding.offset}"
        said.append(f"{finding.severity}: {place}: {finding.text}")
        if finding.repair:
            said.append(f"      repair: {finding.repair}")
    hidden = sum(findings.counts.values()) - min(len(findings.kept), _SHOWN)
    if hidden:
        said.append(f"and {hidden} more; --json lists more")
    counts = [f"{sum(f.severity == severity for f in findings.kept)} {severity}" for severity in ("loss", "wrong")]
    if findings.is_fine:
        said.append("nothing is wrong")
    else:
        said.append(f"{' and '.join(counts)}; to see what repair would do: sprocket store repair {inspection.root}")
    return said
