"""The header, the frame and the batch of a send, as tests of every layer need them."""

import struct
from typing import Any

from sprocket.remoting.codes import RequestCode
from sprocket.remoting.frames import encode_request
from sprocket.remoting.headers.send import SendMessageRequestHeaderV2

BORN_MS = 1_700_000_000_000


def send_header(topic: str = "Orders", **changes: Any) -> SendMessageRequestHeaderV2:
    """Return the header of a plain send to queue 0, with `changes` of its fields."""
    fields: dict[str, Any] = {
        "producer_group": "PG",
        "topic": topic,
        "default_topic": "TBW102",
        "default_topic_queue_nums": 4,
        "queue_id": 0,
        "sys_flag": 0,
        "born_timestamp": BORN_MS,
        "flag": 0,
    }
    return SendMessageRequestHeaderV2(**(fields | changes))


def send_frame(opaque: int, header: SendMessageRequestHeaderV2, body: bytes, *, oneway: bool = False) -> bytes:
    """Return the frame of a send, or of a batch if the header says so."""
    code = RequestCode.SEND_BATCH_MESSAGE if header.batch else RequestCode.SEND_MESSAGE_V2
    return encode_request(code, opaque, header, len(body), oneway=oneway) + body


def client_batch(*messages: tuple[int, bytes, bytes]) -> bytes:
    """(flag, body, properties) of each, as `MessageDecoder.encodeMessages` writes them."""
    pieces = []
    for flag, body, text in messages:
        head = struct.pack(">iiiii", 22 + len(body) + len(text), 0, 0, flag, len(body))
        pieces.append(head + body + struct.pack(">h", len(text)) + text)
    return b"".join(pieces)
