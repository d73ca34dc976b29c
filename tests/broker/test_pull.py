"""Pulls: what is found, held, refused."""

from pathlib import Path

from remoting.codes import ResponseCode
from remoting.headers.pull import PullMessageResponseHeader
from tests.broker.hot_path import TOPIC, hot_path, records


async def test_a_pull_brings_what_was_sent_in_order(tmp_path: Path) -> None:
    async with hot_path(tmp_path) as path:
        for number in range(5):
            await path.send(b"%d" % number)
        response = await path.pull(queue_offset=1, max_msg_nums=3)
        assert (response.code, response.remark) == (ResponseCode.SUCCESS, "FOUND")
        found = records(response.body)
        assert [bytes(record.body) for record in found] == [b"1", b"2", b"3"]
        assert [record.queue_offset for record in found] == [1, 2, 3]
        assert {record.topic for record in found} == {TOPIC}
        header = response.header(PullMessageResponseHeader)
        assert (header.next_begin_offset, header.min_offset, header.max_offset) == (4, 0, 5)
        assert header.suggest_which_broker_id == 0
        assert path.offsets.query_pull("CG", TOPIC, 0) == 4
