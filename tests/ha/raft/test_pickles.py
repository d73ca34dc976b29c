"""No byte of a peer is unpickled, whatever field of whatever message it is in."""

import asyncio
import io
import pickle
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pysyncobj.pickle
import pytest

from ha.raft import engine
from ha.raft.frames import FrameReader, FrameWriter
from ha.raft.messages import Append, Message, SnapshotPart
from ha.raft.storage import SnapshotFile
from sprocket.common.errors import InvariantError, ProtocolError, StoreError
from tests.ha.raft.groups import LocalGroup, until
from tests.ha.raft.sim_group import SimGroup

_KEY = bytes(32)
_hits: list[str] = []


def detonate(word: str) -> str:
    """Be called by a pickle that is loaded."""
    _hits.append(word)
    return word


class _Bomb:
    def __reduce__(self) -> tuple[Any, ...]:
        return detonate, ("boom",)


_BOMB = pickle.dumps(_Bomb(), 2)


@pytest.fixture(autouse=True)
def _no_hits() -> None:
    _hits.clear()


def test_the_bomb_works() -> None:
    assert pysyncobj.pickle.loads(_BOMB) == "boom" and _hits == ["boom"]


_FIELDS: list[list[Any]] = [
    *([tag, *([_BOMB] * count)] for tag, count in
      ((1, 5), (2, 4), (3, 3), (4, 1), (5, 3), (6, 3), (7, 2), (8, 2), (9, 1), (10, 6))),
    [1, 3, 2, 1, 1, _BOMB],
    [1, 3, 2, 1, 1, [_BOMB]],
    [1, 3, 2, 1, 1, [[_BOMB, _BOMB, _BOMB]]],
    [1, 3, 2, 1, 1, [[b"\x02" + _BOMB, 2, 1]]],
    [1, 3, 2, 1, 1, [[b"\x03" + _BOMB, 2, 1]]],
    {"type": "append_entries", "transmission": "finish", "data": _BOMB},
    {"type": "apply_command", "command": _BOMB},
    _BOMB,
]  # fmt: skip


@pytest.mark.parametrize("content", [msgspec.msgpack.encode(one) for one in _FIELDS] + [_BOMB])
def test_a_pickle_in_any_field_is_refused(content: bytes) -> None:
    writer = FrameWriter(_KEY, "n0")
    framed = len(content).to_bytes(4, "big") + content + writer._seal.next_tag(content)
    with pytest.raises(ProtocolError):
        FrameReader(_KEY, "n0").feed(framed)
    assert not _hits


@pytest.mark.parametrize("kind", ["command", "snapshot"])
async def test_a_leader_that_sends_pickles_detonates_nothing(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a message may hold any bytes, a follower gives them to nobody that unpickles."""
    group = SimGroup(5, monkeypatch)
    for member_id in group.members:
        group.start(member_id)
    group.run_until(lambda: group.leader() is not None)
    follower = next(one for one in group.members.values() if one is not group.leader())
    leader, core = group.leader(), follower.core
    assert leader is not None and core is not None
    end = core.journal[-1]
    message: Message
    if kind == "command":
        message = Append(core.term, end[1] + 1, end[1], end[2], [(b"\x00" + _BOMB, end[1] + 1, core.term)])
    else:
        bomb = (b"\x00" + _BOMB, 10**6, core.term)
        content = msgspec.msgpack.encode(SnapshotFile((bomb[0], 10**6 - 1, core.term), bomb, _BOMB))
        message = SnapshotPart(core.term, 10**6, core.term, 0, len(content), content)
    # It is no command and no state of ours: the member stops, rather than to differ from the others.
    with pytest.raises(InvariantError if kind == "command" else StoreError):
        core.received(leader.id, message, group.now)
        core.tick(group.now)
    assert not _hits


@pytest.fixture
async def group(tmp_path: Path) -> AsyncIterator[LocalGroup]:
    group = LocalGroup(tmp_path)
    yield group
    await group.close()


async def test_a_group_works_without_unpickling_anything(group: LocalGroup, monkeypatch: pytest.MonkeyPatch) -> None:
    """Elections, commands, restarts, compaction and a snapshot for a member far behind: none needs a pickle."""

    def refuse(*_: object, **__: object) -> None:
        _hits.append("loaded")
        raise AssertionError("a pickle was loaded")

    for module, name in ((pysyncobj.pickle, "loads"), (pysyncobj.pickle, "load"), (pickle, "loads"), (pickle, "load")):
        monkeypatch.setattr(module, name, refuse)
    monkeypatch.setattr(engine, "COMPACT_ENTRIES", 20)
    with pytest.raises(AssertionError):
        pickle.load(io.BytesIO())
    _hits.clear()
    await group.start()
    leader = await group.leader()
    behind = next(one.id for one in group.places if one.id != leader.leader)
    await group.stop(behind)
    for at in range(60):
        await leader.propose(b"%d" % at, timeout_ms=5000)
    await group.stop(leader.leader or "")
    await group.start(*(one.id for one in group.places if one.id not in group.members))
    await group.propose(b"after")

    async def all_have_them() -> bool:
        return all(len(one.commands) == 61 for one in group.machines.values())

    await until(all_have_them)
    await asyncio.sleep(0)
    assert not _hits
