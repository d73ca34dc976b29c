"""`sprocket store repair`: repairs a store, keeps the replaced bytes, and can undo a repair."""

import sys
from pathlib import Path

import click
import msgspec

from sprocket.common.clock import SystemClock
from sprocket.common.errors import DiskFailed, StoreError
from sprocket_cli.client_session import HELP, WrongUsage, json_option, print_found, print_json
from sprocket_cli.exit_codes import FAILURE, SUCCESS
from sprocket_cli.store.commands import DIRECTORY, progress_bar, shape_of, shape_options, store_errors
from store.disk.disk import RealDisk
from store.inspection.inspected_store import StoreShape
from store.inspection.store_inspection import StoreInspection
from store.repair import repair_files
from store.repair.repair import Repair, settled_shape
from store.repair.repair_journal import Action, describe
from store.repair.repair_plan import plan

_SHOWN = 40


@click.command(context_settings=HELP)
@click.argument("directory", type=DIRECTORY)
@click.option("--yes", is_flag=True, help="Repair; without this, only print what would be done.")
@click.option("--rebuild-queues", metavar="TOPIC", help="Rebuild all queues of TOPIC from the log; '*' for all topics.")
@click.option("--rebuild-index", is_flag=True, help="Rebuild the index from the log.")
@click.option("--undo", metavar="FOLDER", help="Undo the repair that made this repair-<time> folder.")
@shape_options
@json_option
def repair(
    directory: Path, yes: bool, rebuild_queues: str | None, rebuild_index: bool, undo: str | None, config: Path | None,
    segment_bytes: int | None, as_json: bool,
) -> None:  # fmt: skip
    """Repair the stopped store in DIRECTORY.  Without --yes it only prints what it would do.

    Every byte that is cut or replaced is kept in DIRECTORY/repair-<time>/, with a journal of what, where and why.  To
    finish an interrupted repair, run it again.

    Exit status: 0 the store is in order, 1 damage is left, 2 DIRECTORY is no store or a broker uses it, 74 it cannot
    be read or written.
    """
    shape = shape_of(config, segment_bytes)
    with store_errors():
        if not yes:
            sys.exit(_only_say(directory, shape, rebuild_queues, rebuild_index, undo, as_json))
        if not (directory / "commitlog").is_dir() and shape.commit_log is None:
            raise WrongUsage(f"{directory}: is no store directory: there is no commitlog/ in it")
        with _lock(directory):
            if undo:
                _undo(directory, shape, undo, as_json)
                return
            fine = _repair(directory, shape, rebuild_queues, rebuild_index, as_json)
    sys.exit(SUCCESS if fine else FAILURE)


class _lock:  # noqa: N801  # used as a statement
    """Holder of the store's lock during a block.  Raises WrongUsage if a broker holds it."""

    def __init__(self, directory: Path) -> None:
        self._path = directory / "lock"

    def __enter__(self) -> None:
        try:
            self._held = RealDisk().lock(self._path)
        except DiskFailed:
            raise
        except StoreError:
            raise WrongUsage(f"{self._path.parent}: a broker uses this store: stop it first") from None

    def __exit__(self, *_: object) -> None:
        self._held.release()


def _only_say(
    directory: Path, shape: StoreShape, rebuild_queues: str | None, rebuild_index: bool, undo: str | None,
    as_json: bool,
) -> int:  # fmt: skip
    if undo:
        journal = repair_files.load(directory / Path(undo).name)
        for action in reversed(journal.actions):
            click.echo(f"would undo: {describe(action)}")
        return SUCCESS
    store, actions = _inspected(directory, shape, rebuild_queues, rebuild_index, as_json)
    pending = repair_files.unfinished(directory)
    if as_json:
        print_json(_document(store, actions, None, done=False))
    else:
        if store.is_running:
            click.echo("a broker uses this store: stop it before --yes")
        if pending is not None:
            click.echo(f"a repair was interrupted: {pending}; --yes finishes it first")
        _say(actions, "would ")
        if actions:
            click.echo("nothing was changed; --yes does it")
    return SUCCESS if store.findings.is_fine and not actions else FAILURE


def _inspected(
    directory: Path, shape: StoreShape, rebuild_queues: str | None, rebuild_index: bool, as_json: bool, *,
    is_ours: bool = False,
) -> tuple[StoreInspection, list[Action]]:  # fmt: skip
    store = StoreInspection(directory, shape, is_ours=is_ours)
    with progress_bar("checking", store.total_bytes, quiet=as_json) as progress:
        store.run(progress)
    return store, plan(store, rebuild_queues=rebuild_queues, rebuild_index=rebuild_index)


def _repair(directory: Path, shape: StoreShape, rebuild_queues: str | None, rebuild_index: bool, as_json: bool) -> bool:
    told = (lambda text: None) if as_json else (lambda text: click.echo(text))
    resumed = Repair(directory, shape, SystemClock(), told).resume()
    if resumed is not None and not as_json:
        click.echo(f"finished the repair that was interrupted: {resumed}")
    store, actions = _inspected(directory, shape, rebuild_queues, rebuild_index, as_json, is_ours=True)
    if not actions:
        if as_json:
            print_json(_document(store, actions, resumed, done=True))
        else:
            _say(actions, "")
            _say_rest(store)
        return store.findings.is_fine
    shape = settled_shape(shape, store)
    folder = Repair(directory, shape, SystemClock(), told).act(store, actions)
    after, _ = _inspected(directory, shape, None, False, as_json, is_ours=True)
    if as_json:
        print_json(_document(after, actions, folder, done=True))
    else:
        click.echo(f"the replaced bytes are kept in {folder}")
        _say_rest(after)
    return after.findings.is_fine


def _undo(directory: Path, shape: StoreShape, name: str, as_json: bool) -> None:
    said = Repair(directory, shape, SystemClock()).undo(name)
    print_found({"undone": said}, (f"undone: {line}" for line in said), as_json=as_json)


def _say(actions: list[Action], prefix: str) -> None:
    for action in actions[:_SHOWN]:
        click.echo(f"{prefix}{describe(action)}")
    if len(actions) > _SHOWN:
        click.echo(f"and {len(actions) - _SHOWN} more; --json lists all")
    if not actions:
        click.echo("there is nothing to repair")


def _say_rest(store: StoreInspection) -> None:
    if store.findings.is_fine:
        click.echo("a check now finds nothing wrong")
        return
    for finding in store.findings.kept[:_SHOWN]:
        if finding.severity != "note":
            click.echo(f"still {finding.severity}: {finding.path}: {finding.text}")


def _document(store: StoreInspection, actions: list[Action], folder: Path | None, *, done: bool) -> dict[str, object]:
    return {
        "store": str(store.root),
        "ok": store.findings.is_fine,
        "inUse": store.is_running,
        "done": done,
        "folder": None if folder is None else str(folder),
        "actions": msgspec.to_builtins(actions),
        "findings": [finding.document() for finding in store.findings.kept],
    }
