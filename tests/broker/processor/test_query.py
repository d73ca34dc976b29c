"""QUERY_MESSAGE and VIEW_MESSAGE_BY_ID over the wire."""

from pathlib import Path

import msgspec
import pytest

from sprocket.remoting.codes import RequestCode, ResponseCode
from sprocket.remoting.headers.admin import (
    QueryMessageRequestHeader,
    QueryMessageResponseHeader,
    ViewMessageRequestHeader,
)
from store.record.record import Record, decode
from tests.broker.rig import TOPIC, running_broker

FOREVER = (1 << 63) - 1


def query(key: str, max_num: int = 32, **changes: object) -> QueryMessageRequestHeader:
    header = QueryMessageRequestHeader(topic=TOPIC, key=key, max_num=max_num, begin_timestamp=0, end_timestamp=FOREVER)
    return msgspec.structs.replace(header, **changes)


def bodies(content: bytes) -> list[bytes]:
    """Bodies of records side by side."""
    found, at = [], 0
    while at < len(content):
        size = int.from_bytes(content[at : at + 4], "big")
        record = decode(memoryview(content)[at : at + size])
        assert isinstance(record, Record), record
        found.append(bytes(record.body))
        at += size
    return found


@pytest.mark.code(RequestCode.QUERY_MESSAGE)
async def test_a_message_is_found_right_after_it_was_sent(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as (broker, client):
        for number in range(40):
            await client.send(b"%d" % number, KEYS=f"key{number} all", UNIQ_KEY=f"U{number}")
            response = await client.ask_well(RequestCode.QUERY_MESSAGE, query(f"key{number}"))
            assert bodies(response.body) == [b"%d" % number]
            reached = response.header(QueryMessageResponseHeader)
            assert 0 <= reached.index_last_update_phyoffset < broker.store.confirm_offset
            assert reached.index_last_update_timestamp > 0
        response = await client.ask_well(RequestCode.QUERY_MESSAGE, query("U17", is_unique_key="true"))
        assert bodies(response.body) == [b"17"]


async def test_how_many_are_found(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as (_, client):
        for number in range(70):
            await client.send(b"%d" % number, KEYS="all", UNIQ_KEY=f"U{number}")
        for most, expected in ((1, 1), (10, 10), (1000, 64)):
            response = await client.ask_well(RequestCode.QUERY_MESSAGE, query("all", most))
            assert bodies(response.body) == [b"%d" % number for number in range(70 - expected, 70)], "the newest"
        response = await client.ask_well(RequestCode.QUERY_MESSAGE, query("all", 1, is_unique_key="true"))
        assert len(bodies(response.body)) == 32, "defaultQueryMaxNum, whatever was asked for"


@pytest.mark.parametrize(
    "header",
    [query("other"), query("all", topic="Other"), query("all", 0), query("all", -5), query("all", end_timestamp=1000)],
)
async def test_what_is_not_there(tmp_path: Path, header: QueryMessageRequestHeader) -> None:
    async with running_broker(tmp_path) as (_, client):
        await client.send(b"body", KEYS="all")
        response = await client.ask(RequestCode.QUERY_MESSAGE, header)
        assert response.code == ResponseCode.QUERY_NOT_FOUND
        assert response.remark == "can not find message, maybe time range not correct"


async def test_without_an_index_a_query_finds_nothing_and_does_not_wait(tmp_path: Path) -> None:
    async with running_broker(tmp_path, store={"message_index_enable": False}) as (_, client):
        await client.send(b"body", KEYS="all")
        response = await client.ask(RequestCode.QUERY_MESSAGE, query("all"))
        assert response.code == ResponseCode.QUERY_NOT_FOUND


@pytest.mark.code(RequestCode.VIEW_MESSAGE_BY_ID)
async def test_an_offset_that_is_no_records_finds_nothing(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as (broker, client):
        await client.send(b"one")
        await client.send(b"two")
        second = broker.store.entry(TOPIC, 0, 1)
        assert second is not None
        response = await client.ask_well(RequestCode.VIEW_MESSAGE_BY_ID, ViewMessageRequestHeader(offset=second[0]))
        assert bodies(response.body) == [b"two"]
        for offset in (second[0] + 1, second[0] - 4, second[0] + second[1], -1, -(1 << 63), FOREVER):
            response = await client.ask(RequestCode.VIEW_MESSAGE_BY_ID, ViewMessageRequestHeader(offset=offset))
            assert response.code == ResponseCode.SYSTEM_ERROR
            assert response.remark == f"can not find message by the offset, {offset}"


async def test_a_damaged_record_is_not_served(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as (_, client):
        await client.send(b"abcdefgh" * 20, KEYS="damaged")
        await client.ask_well(RequestCode.QUERY_MESSAGE, query("damaged"))
        path = next((tmp_path / "store" / "commitlog").iterdir())
        at = path.read_bytes().index(b"abcdefgh")
        with path.open("r+b") as file:
            file.seek(at)
            file.write(b"X")
        response = await client.ask(RequestCode.QUERY_MESSAGE, query("damaged"))
        assert response.code == ResponseCode.QUERY_NOT_FOUND
        response = await client.ask(RequestCode.VIEW_MESSAGE_BY_ID, ViewMessageRequestHeader(offset=0))
        assert response.code == ResponseCode.SYSTEM_ERROR
