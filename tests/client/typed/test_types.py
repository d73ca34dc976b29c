"""What mypy says of programs that use typed topics: the types arrive, and mistakes are errors."""

import re
from pathlib import Path

from mypy import api

PROGRAM = """
from dataclasses import dataclass
import sprocket

@dataclass
class Order:
    number: int

async def main() -> None:
    async with sprocket.connect("127.0.0.1:9876") as mq:
        reveal_type(mq)  # R: sprocket.client.connect.Connection
        orders = mq.topic("Orders", Order)
        reveal_type(orders)  # R: sprocket.client.typed.topic.Topic[program.Order]
        await orders.send(Order(1), key="order-1")
        await orders.send("shoes")  # E: arg-type
        async for order in orders.consume("billing"):
            reveal_type(order)  # R: program.Order
            order.item  # E: attr-defined
        async for typed in orders.consume("billing").messages():
            reveal_type(typed.value)  # R: program.Order
        async with orders.consume("billing") as consumer:
            reveal_type(await anext(consumer))  # R: program.Order
            await consumer.run(lambda order: order.number)
            await consumer.run(lambda order: order.item)  # E: attr-defined
        async for message in mq.consumer("readers", "Flights"):
            reveal_type(message)  # R: sprocket.client.message.ReceivedMessage
            async with message.process() as same:
                reveal_type(same)  # R: sprocket.client.message.ReceivedMessage
            await message.nack("soon")  # E: arg-type
        reveal_type(await mq.admin.topic_list())  # R: list[str]
        mq.topic("Numbers", int, serializer=sprocket.BytesSerializer())  # E: misc
"""


def test_types(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    root = Path(__file__).resolve().parents[3]
    # The cache of `make check`, so that the client is not checked once more.
    told, errors, _ = api.run([f"--config-file={root}/pyproject.toml", f"--cache-dir={root}/.mypy_cache", str(program)])
    assert not errors
    said = {int(line): text for line, text in re.findall(r"program\.py:(\d+): (.*)", told)}
    for number, line in enumerate(PROGRAM.splitlines(), 1):
        revealed, error = re.search("# R: (.+)", line), re.search("# E: (.+)", line)
        text = said.pop(number, "")
        if revealed:
            assert text == f'note: Revealed type is "{revealed[1]}"', line
        elif error:
            assert text.startswith("error:") and text.endswith(f"[{error[1]}]"), line
        else:
            assert not text, line
