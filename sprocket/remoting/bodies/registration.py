"""The body of REGISTER_BROKER, plain or compressed.

Source: RocketMQ 5.3.3, `RegisterBrokerBody`.  Compressed, it is one zlib stream of length-prefixed (i32)
pieces: the data version's JSON; the count of topics and each topic's line; the filter servers' JSON; from
peers of version 5.0.0 on, the count of queue mappings and each one's JSON.
"""

import struct
import zlib
from typing import Final

import msgspec

from sprocket.common import limits
from sprocket.common.errors import ProtocolError
from sprocket.remoting.bodies.topic import DataVersion, TopicConfig
from sprocket.remoting.bodies.topic_queue_mapping import TopicQueueMappingInfo
from sprocket.remoting.codec.body_limits import REGISTRATION, check_count
from sprocket.remoting.codec.fastjson import dumps, loads
from sprocket.remoting.codec.java_text import java_text
from sprocket.remoting.codec.mended_json import mended

VERSION_5_0_0 = 413  # ordinal of V5_0_0 in `MQVersion`
_I32 = struct.Struct(">i")
# Larger bodies are read in a thread.
LARGE_BYTES: Final = 64 * 1024
LARGE_COMPRESSED_BYTES: Final = 1024
_MAX_FILTER_SERVERS: Final = 1_000
_raw_topics: Final = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_topic: Final = msgspec.json.Decoder(TopicConfig, strict=False).decode


class TopicConfigAndMapping(msgspec.Struct, rename="camel"):
    """Topics of a broker with the version of the whole table."""

    topic_config_table: dict[str, TopicConfig] = {}
    data_version: DataVersion = msgspec.field(default_factory=DataVersion)
    topic_queue_mapping_info_map: dict[str, TopicQueueMappingInfo] = {}
    topic_queue_mapping_detail_map: dict[str, msgspec.Raw] = {}
    mapping_data_version: DataVersion = msgspec.field(default_factory=DataVersion)


class RegisterBrokerBody(msgspec.Struct, rename="camel"):
    """What a broker tells a name server about itself."""

    topic_config_serialize_wrapper: TopicConfigAndMapping = msgspec.field(default_factory=TopicConfigAndMapping)
    filter_server_list: list[str] = []

    def encode(self, compressed: bool) -> bytes:
        if not compressed:
            # Standard JSON, which fastjson reads too: for many topics a hundred times faster than its own form.
            return msgspec.json.encode(self)
        wrapper = self.topic_config_serialize_wrapper
        pieces = [_sized(dumps(wrapper.data_version)), _I32.pack(len(wrapper.topic_config_table))]
        pieces += [_sized(config.encode().encode()) for config in wrapper.topic_config_table.values()]
        pieces.append(_sized(dumps(self.filter_server_list)))
        pieces.append(_I32.pack(len(wrapper.topic_queue_mapping_info_map)))
        pieces += [_sized(dumps(info)) for info in wrapper.topic_queue_mapping_info_map.values()]
        return zlib.compress(b"".join(pieces), 9)

    @classmethod
    def decode(cls, body: bytes, compressed: bool, peer_version: int) -> "RegisterBrokerBody":
        """Raises ProtocolError, also for a body that inflates beyond the limit."""
        if not compressed:
            return _decode_plain(body)
        reader = _Pieces(inflate(body))
        wrapper = TopicConfigAndMapping(data_version=loads(reader.piece(), DataVersion))
        for _ in range(reader.count(limits.MAX_REGISTERED_TOPICS)):
            config = TopicConfig.decode(java_text(reader.piece()))
            wrapper.topic_config_table[config.topic_name] = config
        filter_servers = loads(reader.piece(), list[str])
        check_count("filter servers", filter_servers, _MAX_FILTER_SERVERS)
        if peer_version >= VERSION_5_0_0:
            for _ in range(reader.count(limits.MAX_REGISTERED_TOPICS)):
                info = loads(reader.piece(), TopicQueueMappingInfo)
                wrapper.topic_queue_mapping_info_map[info.topic or ""] = info
        return cls(wrapper, filter_servers)


class _LargeWrapper(msgspec.Struct, rename="camel"):
    topic_config_table: msgspec.Raw = msgspec.Raw(b"{}")
    data_version: DataVersion = msgspec.field(default_factory=DataVersion)
    topic_queue_mapping_info_map: dict[str, TopicQueueMappingInfo] = {}
    topic_queue_mapping_detail_map: dict[str, msgspec.Raw] = {}
    mapping_data_version: DataVersion = msgspec.field(default_factory=DataVersion)


class _LargeBody(msgspec.Struct, rename="camel"):
    topic_config_serialize_wrapper: _LargeWrapper = msgspec.field(default_factory=_LargeWrapper)
    filter_server_list: list[str] = []


def _decode_plain(body: bytes) -> RegisterBrokerBody:
    """Read a plain body; a large one topic by topic, so that other threads run in between."""
    if len(body) <= LARGE_BYTES:
        return loads(body, RegisterBrokerBody, REGISTRATION)
    large = loads(body, _LargeBody, REGISTRATION)
    wrapper = large.topic_config_serialize_wrapper
    try:
        raw_topics = _raw_topics(wrapper.topic_config_table)
        check_count("topics", raw_topics, limits.MAX_REGISTERED_TOPICS)
        topics = {name: _topic(raw) for name, raw in raw_topics.items()}
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        allowed = mended(body)
        if allowed is None:
            raise ProtocolError("body", str(error)) from None
        return _decode_plain(allowed)
    check_count("filter servers", large.filter_server_list, _MAX_FILTER_SERVERS)
    return RegisterBrokerBody(
        TopicConfigAndMapping(
            topics,
            wrapper.data_version,
            wrapper.topic_queue_mapping_info_map,
            wrapper.topic_queue_mapping_detail_map,
            wrapper.mapping_data_version,
        ),
        large.filter_server_list,
    )


def inflate(body: bytes, limit_bytes: int = limits.MAX_FRAME_BYTES) -> bytes:
    """Return a zlib stream, inflated up to `limit_bytes`.  Raises ProtocolError beyond it or for bad data.

    A compressed body may hold no more than a plain one, which already keeps a name server busy for seconds.
    """
    inflater = zlib.decompressobj()
    try:
        inflated = inflater.decompress(body, limit_bytes)
    except zlib.error as error:
        raise ProtocolError("body", f"zlib: {error}") from None
    if inflater.unconsumed_tail or not inflater.eof:
        raise ProtocolError("body", f"zlib stream is cut short or inflates beyond {limit_bytes} bytes")
    return inflated


def _sized(piece: bytes) -> bytes:
    return _I32.pack(len(piece)) + piece


class _Pieces:
    """Reader of length-prefixed pieces that never reads past the end."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def count(self, limit: int = limits.MAX_FRAME_BYTES) -> int:
        if self._at + 4 > len(self._data):
            raise ProtocolError("body", "ends inside a length")
        (number,) = _I32.unpack_from(self._data, self._at)
        self._at += 4
        if not 0 <= number <= len(self._data) - self._at:
            raise ProtocolError("body", f"length {number} with {len(self._data) - self._at} bytes left")
        if number > limit:
            raise ProtocolError("body", f"{number} topics, the limit is {limit}")
        return int(number)

    def piece(self) -> bytes:
        size = self.count()
        start = self._at
        self._at += size
        return self._data[start : self._at]
