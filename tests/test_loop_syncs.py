"""The watch that every broker, name server and controller of a test is under finds a sync on the loop."""

import asyncio
from pathlib import Path

from sprocket.common.files.atomic_file import replace_file
from tests.loop_syncs import loop_syncs


async def test_a_sync_in_the_loops_thread_is_found_and_one_in_another_is_not(tmp_path: Path) -> None:
    with loop_syncs() as found:
        await asyncio.to_thread(replace_file, tmp_path / "a", b"")
        assert not found
        done = asyncio.get_running_loop().create_future()
        asyncio.get_running_loop().call_soon(replace_file, tmp_path / "a", b"")
        asyncio.get_running_loop().call_soon(done.set_result, None)
        await done
        assert len(found) == 2 and "replace_file" in found[0]
        replace_file(tmp_path / "a", b"")
        assert len(found) == 2, "a test may sync"
