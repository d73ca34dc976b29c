"""Soak: random damage of any file of a store is found without an exception, and after repair nothing is wrong."""

import random
import shutil
from pathlib import Path

import pytest

from store.repair.repair import Repair
from tests.clock import ManualClock
from tests.store.inspection.stopped_store import SHAPE, check, check_and_plan, content_of, fill, kinds
from tests.store.rig import Stores

SEEDS = 300


def damage(path: Path, choose: random.Random) -> str:
    """Flip a bit, cut, extend, zero, overwrite or remove; say what was done."""
    content = bytearray(path.read_bytes())
    at = choose.randrange(len(content) + 1)
    size = choose.randrange(1, 5000)
    kind = choose.choice(["flip", "flip", "cut", "extend", "zero", "overwrite", "remove"])
    if kind == "remove":
        path.unlink()
        return kind
    if kind == "flip" and content:
        # Most of a file is zeros after its content.
        at = choose.randrange(max(1, len(content.rstrip(b"\0"))))
        content[at] ^= 1 << choose.randrange(8)
    elif kind == "cut":
        del content[at:]
    elif kind == "extend":
        content += choose.randbytes(size)
    else:
        end = min(len(content), at + size)
        content[at:end] = bytes(end - at) if kind == "zero" else choose.randbytes(end - at)
    path.write_bytes(content)
    return f"{kind} at {at}"


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_random_damage_of_any_file_is_repaired(stores: Stores, tmp_path: Path) -> None:
    root = fill(stores)
    names = sorted(content_of(root))
    work = tmp_path / "work"
    for seed in range(SEEDS):
        shutil.rmtree(work, ignore_errors=True)
        shutil.copytree(root, work)
        choose = random.Random(seed)
        name = choose.choice(names)
        what = f"seed {seed}: {name}: {damage(work / name, choose)}"
        check(work, quick=True)
        store, actions = check_and_plan(work)
        assert bool(actions) == bool(kinds(store)), what
        if actions:
            Repair(work, SHAPE, ManualClock()).act(store, actions)
        assert kinds(check(work)) == set(), what
