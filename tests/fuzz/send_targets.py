"""Sends with any text in every field: the answer is one frame that says what it is to say, and no more."""

import random
import re
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

import msgspec

from broker.client.queue_locks import QueueLocks
from broker.config.live_config import LiveConfig
from broker.idempotence.known_ids import KnownIds
from broker.message_id import UniqueKeys
from broker.metrics.message_flow import MessageFlow
from broker.namespace.namespaces import NO_NAMESPACES
from broker.processor.send import SendProcessor
from broker.quota.quota_table import QuotaTable
from broker.quota.quotas import Quotas
from broker.send.intake import MessageIntake
from broker.send.planner import SendPlanner
from broker.timer.timer_intake import TimerIntake
from sprocket.common.files.config_file import ConfigFile
from sprocket.remoting.bodies.topic import TopicConfig
from sprocket.remoting.codes import RequestCode, ResponseCode
from sprocket.remoting.command import Buffer, ReceivedResponse, Request, Response
from sprocket.remoting.frames import encode_request, encode_response
from sprocket.remoting.framing import JSON, ROCKETMQ, Frame, FrameDecoder
from sprocket.remoting.headers.send import SendMessageRequestHeader, SendMessageRequestHeaderV2
from sprocket.remoting.message import properties as names
from sprocket.remoting.routes import RouteTable, UnroutableRequest, open_frame
from store.queue.logic_queue import LogicQueue
from store.record.record import Appended, PendingMessage, TagsCodes
from store.scan.record_batch import RecordBatch
from tests.broker.idempotence.at_once import call_at_once
from tests.broker.rig import broker_config, store_config
from tests.clock import ManualClock
from tests.fuzz.hostile_requests import TEXTS
from tests.fuzz.target import Target

HOST: Final = bytes((10, 1, 2, 3)) + (10911).to_bytes(4, "big")
OPAQUE: Final = 77
CONSTANT: Final = {"MSG_REGION", "TRACE_ON"}
STORED: Final = {"msgId", "queueId", "queueOffset"}
OPTIONAL: Final = {"transactionId", "recallHandle", "duplicates"}
MADE_KEY: Final = re.compile("[0-9A-F]{32}")
HANDLE: Final = re.compile("[A-Za-z0-9_=-]+")
# The texts of an input are split by it: fields of a header, then properties.
SEPARATOR: Final = "\x1f"


class Channel:
    """Keeps what is answered."""

    peer = ("10.0.0.9", 4711)
    id = 1

    def __init__(self) -> None:
        self.written = b""

    def reply(self, request: Request[Any], response: Response) -> None:
        self.answer(request, *encode_response(response, request.opaque, request.serialization))

    def refuse(self, request: Request[Any], error: Exception) -> None:
        raise error

    def answer(self, request: Request[Any], *frame: Buffer, code: int = 0) -> None:
        self.answer_run([request], b"".join(frame))

    def answer_run(self, requests: list[Request[Any]], frames: bytes, code: int = 0) -> None:
        self.written += frames


class Store:
    """Takes everything."""

    store_host = HOST

    wrote_offset = 0

    def append(self, messages: Sequence[PendingMessage]) -> list[Appended]:
        return [(number, 4096 + number, 300) for number, _ in enumerate(messages)]

    def next_offset(self, topic: str, queue_id: int) -> int:
        return 0

    def new_queues(self, own: tuple[str, int], messages: Sequence[PendingMessage]) -> list[tuple[str, int]]:
        return [own]

    def plain_queue(self, topic: str, queue_id: int, *, may_be_new: bool = False) -> LogicQueue | None:
        return None

    def encoded_limits(self) -> tuple[int, int]:
        """No room for records of a kernel."""
        return 0, 0

    def segment_before(self, store_timestamp_ms: int) -> int:
        return 0

    def records_from(self, physical_offset: int) -> tuple[RecordBatch | None, int]:
        return None, physical_offset + 1

    def holds(self, topic: str, queue_id: int, queue_offset: int, physical_offset: int) -> bool:
        return True


def _processor() -> SendProcessor:
    clock = ManualClock()
    config = LiveConfig(broker_config(), store_config(Path("/nowhere")))
    # Every topic takes messages, and every group is there.
    topics: Any = SimpleNamespace(
        get=lambda topic: TopicConfig(topic, 4, 4), get_or_create=lambda topic, queues: None, unsaved=set()
    )
    groups: Any = SimpleNamespace(find=lambda group: SimpleNamespace(retry_max_times=16))
    waits: Any = SimpleNamespace(
        is_needed=False, may_acknowledge=True, wait=lambda end, answer, prepare=None: answer(None, ResponseCode.SUCCESS)
    )
    timer = TimerIntake(config, clock, random.Random(1).randrange, lambda slot_time: 0)
    store: Any = Store()
    core: Any = SimpleNamespace(
        config=config, store=store, topics=topics, groups=groups, locks=QueueLocks(clock), flow=MessageFlow(),
        mappings=SimpleNamespace(by_name={}), clock=clock, waits=waits, random_below=random.Random(1).randrange,
        ids=KnownIds(config, store, clock, call_at_once), namespaces=NO_NAMESPACES,
        quotas=Quotas(QuotaTable(ConfigFile(Path("nowhere")), clock, config.plan_version), clock),
    )  # fmt: skip
    intake = MessageIntake(core, TagsCodes("1s 5s"), UniqueKeys(HOST[:4], 1, 1, clock), timer)
    return SendProcessor(core, SendPlanner(core), intake)


PROCESSOR: Final = _processor()
TABLE: Final = RouteTable(PROCESSOR.routes())


def _header(texts: list[str], version: int) -> SendMessageRequestHeader | SendMessageRequestHeaderV2:
    group, topic, default_topic, properties = (*texts[:3], SEPARATOR.join(texts[3:]))
    kind = SendMessageRequestHeaderV2 if version else SendMessageRequestHeader
    return kind(
        producer_group=group, topic=topic, default_topic=default_topic, default_topic_queue_nums=4, queue_id=1,
        sys_flag=0, born_timestamp=7, flag=9, properties=properties, reconsume_times=0,
    )  # fmt: skip


def send_answers(data: bytes) -> None:
    """A send with any texts is answered once, with the fields of such an answer, and with the key that it named."""
    kind = data[0] if data else 0
    texts = data[1:].decode("utf-8", "replace").split(SEPARATOR)
    header = _header([*texts, *[""] * (4 - len(texts))], kind & 2)
    code = RequestCode.SEND_MESSAGE_V2 if kind & 2 else RequestCode.SEND_MESSAGE
    serialization = ROCKETMQ if kind & 1 else JSON
    sent = encode_request(code, OPAQUE, header, 4, serialization=serialization) + b"body"
    (frame,) = FrameDecoder().feed(sent)
    try:
        decoded = TABLE.decode(frame)
    except UnroutableRequest:
        return  # an empty text of a ROCKETMQ header is none
    assert not isinstance(decoded, ReceivedResponse)
    entry, request = decoded
    channel = Channel()
    request.channel = channel
    assert entry.batch is not None
    entry.batch([request])
    (answer,) = FrameDecoder().feed(channel.written)
    _check(answer, _all(header.properties or ""))


def _all(properties: str) -> set[str]:
    """All keys that the properties name, whichever of them counts."""
    items = [item.partition(names.NAME_END) for item in properties.split(names.VALUE_END)]
    return {value for name, _, value in items if name == names.UNIQ_KEY and value}


def _check(frame: Frame, keys: set[str]) -> None:
    answer = open_frame(frame)
    assert isinstance(answer, ReceivedResponse)
    assert answer.opaque == OPAQUE and not frame[2]
    if frame[0] == JSON:
        document = msgspec.json.decode(frame[1])
        assert set(document) - {"remark"} == {
            "code", "extFields", "flag", "language", "opaque", "serializeTypeCurrentRPC", "version",
        }  # fmt: skip
    fields = answer.ext_fields
    if answer.code != ResponseCode.SUCCESS:
        assert set(fields) == CONSTANT
        return
    assert set(fields) - OPTIONAL == CONSTANT | STORED
    key = fields["transactionId"]
    assert key in keys or (not keys and MADE_KEY.fullmatch(key)), (key, keys)
    assert HANDLE.fullmatch(fields.get("recallHandle", "-"))


KEYS: Final = ("7F0000010B2A18B4AAC2000000000000", 'abc\x03x","evil":"9', 'a"', "\\", "\x03djEg", "%s", "k\x00", "é")
SEEDS: Final = [
    bytes([kind]) + SEPARATOR.join(["PG", "Orders", "TBW102", names.encode({"UNIQ_KEY": key} | more)]).encode()
    for kind, key in enumerate(KEYS)
    for more in ({}, {"TIMER_DELAY_SEC": "60"}, {"TAGS": "a", "KEYS": 'k"\n'}, {"DELAY": "3"}, {"TRAN_MSG": "true"})
] + [
    bytes([number]) + SEPARATOR.join([text, text, text, f"UNIQ_KEY\x01{text}\x02{text}\x01{text}\x02"]).encode()
    for number, text in enumerate(TEXTS)
    if len(text) < 1000
]
SEND_TARGETS: Final = [Target("send_answers", send_answers, SEEDS, 400)]
