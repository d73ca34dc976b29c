"""Every method and code of a proxy with hostile requests: each is answered, and no error is undeclared.

`python -m tests.fuzz.test_every_method COUNT SEED` sends so many of each.
"""

import asyncio
import logging
import random
import sys
import tempfile
from collections import Counter
from pathlib import Path

import grpc
import pytest

from proxy.server.dispatcher import SERVICE
from sprocket.grpc_wire import messaging_pb2 as wire
from sprocket.testing import Broker
from tests.fuzz.hostile_messages import Hostile
from tests.fuzz.test_every_code import Undeclared
from tests.proxy.rig import GrpcClient, Rig, create_group, create_topic, handle_of, running

_PROPERTIES = {"enableLmq": "true", "enableMultiDispatch": "true", "recallMessageEnable": "true"}
_DEADLINE_S = 0.3
_AT_ONCE = 32


async def _known(rig: Rig) -> dict[str, list[str]]:
    """Good texts by the fields that they belong to."""
    topics = {kind: await create_topic(rig.broker, kind) for kind in ("NORMAL", "DELAY", "TRANSACTION", "LITE")}
    groups = [
        await create_group(rig.broker),
        await create_group(rig.broker, attributes={"+lite.bind.topic": topics["LITE"]}),
    ]
    client = rig.client()
    await client.receive(topics["NORMAL"], groups[0], wait_s=1)
    await client.send(topics["NORMAL"], *map(str, range(8)))
    found = [handle_of(one) for one in await client.messages(topics["NORMAL"], groups[0], 8, invisible_s=600)]
    half = await client.send(topics["TRANSACTION"], "half", message_type=wire.TRANSACTION)
    later = wire.SystemProperties(message_type=wire.DELAY)
    later.delivery_timestamp.GetCurrentTime()
    later.delivery_timestamp.seconds += 600
    delayed = await client.send(
        topics["DELAY"], "later", message_type=wire.DELAY, delivery_timestamp=later.delivery_timestamp
    )
    return {
        "receipt_handle": [handle for _, handle in found],
        "message_id": [number for number, _ in found],
        "transaction_id": [half.entries[0].transaction_id],
        "recall_handle": [delayed.entries[0].recall_handle],
        "lite_topic": ["lite-1", "lite-2"],
        "broker": [found[0][1].split(" ")[5]],
        "namespace": [""],
        "group": groups,
        "topic": list(topics.values()),
        "expression": ["*", "a || b"],
    }


async def _ask(client: GrpcClient, method: str, request: object, answers: Counter[str]) -> None:
    try:
        if method in ("ReceiveMessage", "PullMessage"):
            parts = await client.stream(method, request, timeout_s=_DEADLINE_S)
            found = next((part.status.code for part in parts if part.HasField("status")), None)
        elif method == "Telemetry":
            stream = client.telemetry()
            await stream.write(request)
            await stream.done_writing()
            part = await stream.read()
            found = None if part is grpc.aio.EOF else part.status.code
        else:
            found = (await client.call(method, request, timeout_s=_DEADLINE_S)).status.code
        answers["none" if found is None else wire.Code.Name(found)] += 1
    except grpc.aio.AioRpcError as error:
        answers[error.code().name] += 1


async def attack(folder: Path, count: int, seed: int) -> tuple[Counter[str], list[str]]:
    """What a proxy answered, and what it did not expect."""
    undeclared, answers = Undeclared(), Counter[str]()
    logging.getLogger().addHandler(undeclared)
    try:
        with Broker(folder, properties=_PROPERTIES) as broker:
            async with running(broker, enable_topic_message_type_check=False) as rig:
                known = await _known(rig)
                for method in SERVICE.methods:
                    dice = random.Random(f"{seed} {method.name}")
                    hostile, client = Hostile(known, dice), rig.client()
                    for _ in range(0, count, _AT_ONCE):
                        requests = [hostile.message(method.input_type.name) for _ in range(min(_AT_ONCE, count))]
                        await asyncio.gather(*(_ask(client, method.name, one, answers) for one in requests))
                # It still serves who means well.
                topic, group, client = await create_topic(broker), await create_group(broker), rig.client()
                await client.receive(topic, group, wait_s=1)
                await client.send(topic, "after")
                (received,) = await client.messages(topic, group, 1)
                assert (await client.ack(topic, group, handle_of(received))).status.code == wire.OK
    finally:
        logging.getLogger().removeHandler(undeclared)
    return answers, undeclared.found


@pytest.mark.timeout(240)
async def test_methods(tmp_path: Path) -> None:
    answers, undeclared = await attack(tmp_path, 32, 1)
    assert not undeclared, "\n".join(undeclared[:5])
    assert answers["OK"] > 0 and not answers["UNKNOWN"], answers


async def _main(count: int, seed: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        answers, undeclared = await attack(Path(folder), count, seed)
    print(f"{sum(answers.values())} requests, answers {dict(answers.most_common())}")
    print(f"undeclared: {len(undeclared)}", flush=True)
    for text, times in Counter(undeclared).most_common(40):
        print(f"--- {times} times\n{text}")


if __name__ == "__main__":
    asyncio.run(_main(int(sys.argv[1]), int(sys.argv[2])))
