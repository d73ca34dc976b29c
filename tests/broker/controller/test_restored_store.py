"""A store that was restored from an archive which lacked messages, under controllers."""

from pathlib import Path

from store.tier.partial_restore import PartialRestore, write_mark
from tests.broker.controller.rig import Group, Replica
from tests.waiting import until


async def test_a_store_that_lacks_messages_may_lead_and_follows_nobody(tmp_path: Path) -> None:
    root = tmp_path / "replica-1" / "store"
    root.mkdir(parents=True)
    write_mark(root, PartialRestore(100, ["3 messages"]))
    group = Group()
    try:
        for broker_id in (1, 2):
            await group.start(Replica(tmp_path, broker_id))
        await group.elect(1)
        await group[1].client.send(b"body")
        await group.in_step()
        assert group[1].fatal == []
        await group.elect(2)
        await until(lambda: group[1].fatal != [])
        assert "cannot be a slave's store" in str(group[1].fatal[0])
    finally:
        for replica in group.replicas.values():
            await replica.broker.stop()
