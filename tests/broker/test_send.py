"""Sends: what is stored, what is answered, what is refused."""

from pathlib import Path

from remoting.codes import ResponseCode
from remoting.headers.send import SendMessageResponseHeader
from store.record import java_hash_code
from tests.broker.hot_path import STORE_HOST, TOPIC, hot_path, property_map


async def test_a_send_is_stored_as_it_came_with_what_the_broker_adds(tmp_path: Path) -> None:
    async with hot_path(tmp_path) as path:
        response = await path.send(b"hello", queue_id=2)
        assert response.code == ResponseCode.SUCCESS
        header = response.header(SendMessageResponseHeader)
        assert (header.queue_id, header.queue_offset) == (2, 0)
        assert header.transaction_id == "0A000001000000000000000000000001"
        assert response.ext_fields["MSG_REGION"] == "DefaultRegion"
        assert response.ext_fields["TRACE_ON"] == "true"
        record = path.record(TOPIC, 2, 0)
        assert bytes(record.body) == b"hello"
        assert header.msg_id == STORE_HOST.hex().upper() + f"{record.physical_offset:016X}"
        assert (record.flag, record.born_timestamp, record.queue_id) == (7, 1_700_000_000_000, 2)
        assert property_map(record) == {
            "UNIQ_KEY": "0A000001000000000000000000000001",
            "TAGS": "TagA",
            "MSG_REGION": "DefaultRegion",
            "TRACE_ON": "true",
            "CLUSTER": "DefaultCluster",
        }
        entry = path.store.entry(TOPIC, 2, 0)
        assert entry is not None and entry[2] == java_hash_code("TagA")
