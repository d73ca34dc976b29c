"""A replica in a process of its own, which does what its standard input says: ``python -m ... ROOT ID PORT``.

Each line is a JSON object: ``{"do": "lead", "epoch": 1, "address": "host:port"}``, `follow` likewise, or `rest`.  The
answer is one line: the milliseconds that it took.  The end of the input stops the broker.
"""

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import uvloop

from broker.controller.tenure import Tenure
from tests.broker.controller.rig import Replica

STORE: dict[str, Any] = {"in_sync_replicas": 2, "slave_timeout": 1_000}


async def run(root: Path, broker_id: int, port: int) -> int:
    """Run the replica until the end of the input; return the exit status."""
    loop = asyncio.get_running_loop()
    replica = Replica(root, broker_id, listen_port=port, store=STORE)
    await replica.broker.start()
    switch = replica.border.switch
    switch.identify(broker_id)
    reader = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    print("ready", flush=True)
    while line := await reader.readline():
        asked = json.loads(line)
        began = loop.time()
        if asked["do"] == "rest":
            await switch.rest()
        else:
            tenure = Tenure(asked["epoch"], 0, asked["address"], frozenset({1, 2}), asked["epoch"])
            await (switch.lead(tenure) if asked["do"] == "lead" else switch.follow(tenure))
            if asked["do"] == "lead":
                replica.border.sync_state().count_only(tenure.sync_state_set - {broker_id})
                replica.grant()
        print(f"{(loop.time() - began) * 1000:.1f}", flush=True)
    await replica.broker.stop()
    return len(replica.fatal)


if __name__ == "__main__":
    sys.exit(uvloop.run(run(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))))
