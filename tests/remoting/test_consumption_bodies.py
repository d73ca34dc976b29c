"""Bodies about consumption: read what RocketMQ's classes write, write what they read.

The texts are what RocketMQ 5.3.3's `RemotingSerializable.encode` made of the same values.
"""

import msgspec
import pytest

from sprocket.common.errors import ProtocolError
from sprocket.remoting.bodies.client import MessageQueue, by_queue
from sprocket.remoting.bodies.consumption import (
    CMResult,
    ConsumeMessageDirectlyResult,
    ConsumeQueueData,
    ConsumerRunningInfo,
    ConsumeStatsList,
    ConsumeStatus,
    GetConsumerStatusBody,
    MessageQueueForC,
    PopProcessQueueInfo,
    ProcessQueueInfo,
    QueryConsumeQueueResponseBody,
    QueryCorrectionOffsetBody,
    ResetOffsetBodyForC,
)
from sprocket.remoting.bodies.stats import OffsetWrapper, ResetOffsetBody
from sprocket.remoting.codec.fastjson import dumps, loads

QUEUE = MessageQueue("T", "b", 1)
RUNNING_INFO = (
    b'{"jstack":"stack","mqPopTable":{{"brokerName":"b","queueId":1,"topic":"T"}:{"droped":false,'
    b'"lastPopTimestamp":0,"waitAckCount":2}},"mqTable":{{"brokerName":"b","queueId":1,"topic":"T"}:'
    b'{"cachedMsgCount":0,"cachedMsgMaxOffset":0,"cachedMsgMinOffset":0,"cachedMsgSizeInMiB":3,"commitOffset":4,'
    b'"droped":true,"lastConsumeTimestamp":0,"lastLockTimestamp":0,"lastPullTimestamp":0,"locked":true,'
    b'"transactionMsgCount":0,"transactionMsgMaxOffset":0,"transactionMsgMinOffset":0,"tryUnlockTimes":0}},'
    b'"properties":{"PROP_CONSUME_TYPE":"CONSUME_PASSIVELY","PROP_CONSUMER_START_TIMESTAMP":1234,'
    b'"PROP_CONSUMEORDERLY":"false"},"statusTable":{"T":{"consumeFailedMsgs":0,"consumeFailedTPS":0.0,'
    b'"consumeOKTPS":1.5,"consumeRT":0.0,"pullRT":2.0,"pullTPS":0.0}},"subscriptionSet":[{"classFilterMode":false,'
    b'"codeSet":[],"expressionType":"TAG","subString":"*","subVersion":5,"tagsSet":[],"topic":"T"}],'
    b'"userConsumerInfo":{}}'
)


def test_running_info_of_a_java_client() -> None:
    info = loads(RUNNING_INFO, ConsumerRunningInfo[str])
    held = ProcessQueueInfo(commit_offset=4, cached_msg_size_in_mib=3, dropped=True, locked=True)
    assert by_queue(info.mq_table) == {QUEUE: held}
    assert by_queue(info.mq_pop_table) == {QUEUE: PopProcessQueueInfo(wait_ack_count=2)}
    assert info.properties["PROP_CONSUMER_START_TIMESTAMP"] == 1234
    assert info.status_table == {"T": ConsumeStatus(consume_ok_tps=1.5, pull_rt=2.0)}
    assert [each.sub_version for each in info.subscription_set] == [5]
    assert info.jstack == "stack"


def test_running_info_has_the_names_that_java_reads() -> None:
    written = ConsumerRunningInfo[MessageQueue](
        properties={"PROP_CONSUMEORDERLY": "false"},
        mq_table={QUEUE: ProcessQueueInfo()},
        mq_pop_table={QUEUE: PopProcessQueueInfo()},
        status_table={"T": ConsumeStatus()},
        jstack="stack",
    )

    def names(value: object) -> object:
        if not isinstance(value, dict):
            return None
        return {
            tuple(sorted(loads(key.encode(), dict[str, object]))) if key.startswith("{") else key: names(inner)
            for key, inner in value.items()
        }

    reference = loads(RUNNING_INFO, dict[str, object])
    reference["properties"] = {"PROP_CONSUMEORDERLY": "false"}
    assert names(loads(dumps(written), dict[str, object])) == names(reference)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (
            ConsumeMessageDirectlyResult(consume_result=CMResult.LATER, spent_time_mills=7),
            b'{"autoCommit":true,"consumeResult":"CR_LATER","order":false,"spentTimeMills":7}',
        ),
        (
            ResetOffsetBodyForC([MessageQueueForC("T", "b", 1, 6)]),
            b'{"offsetTable":[{"brokerName":"b","offset":6,"queueId":1,"topic":"T"}]}',
        ),
        (QueryCorrectionOffsetBody({3: 4}), b'{"correctionOffsets":{3:4}}'),
        (
            QueryConsumeQueueResponseBody(
                queue_data=[ConsumeQueueData(physic_offset=1, physic_size=2, tags_code=3)], max_queue_index=5
            ),
            b'{"maxQueueIndex":5,"minQueueIndex":0,'
            b'"queueData":[{"eval":false,"physicOffset":1,"physicSize":2,"tagsCode":3}]}',
        ),
    ],
)
def test_same_values_same_members(value: msgspec.Struct, text: bytes) -> None:
    assert loads(text, type(value)) == value
    assert loads(dumps(value), dict[str, object]) == loads(text, dict[str, object])


def test_tables_by_client_and_by_group() -> None:
    status = loads(
        b'{"consumerTable":{"c1":{{"brokerName":"b","queueId":1,"topic":"T"}:8}}}', GetConsumerStatusBody[str]
    )
    assert {client: by_queue(table) for client, table in status.consumer_table.items()} == {"c1": {QUEUE: 8}}
    stats = loads(
        b'{"brokerAddr":"1.2.3.4:1","consumeStatsList":[{"G":[{"consumeTps":0.0,"offsetTable":{{"brokerName":"b",'
        b'"queueId":1,"topic":"T"}:{"brokerOffset":9,"consumerOffset":4,"lastTimestamp":0,"pullOffset":6}}}]}],'
        b'"totalDiff":5,"totalInflightDiff":0}',
        ConsumeStatsList[str],
    )
    ((group, (part,)),) = stats.consume_stats_list[0].items()
    assert (group, by_queue(part.offset_table)) == ("G", {QUEUE: OffsetWrapper(9, 4, 6, 0)})
    assert (stats.total_diff, stats.broker_addr) == (5, "1.2.3.4:1")


def test_a_key_that_is_no_queue_is_refused() -> None:
    body = loads(dumps(ResetOffsetBody({QUEUE: 3})), ResetOffsetBody[str])
    assert by_queue(body.offset_table) == {QUEUE: 3}
    with pytest.raises(ProtocolError):
        by_queue({"T": 1})
