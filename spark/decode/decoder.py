"""Decoder of records to Arrow columns, without a Python object per record.

This module does not need Spark.  A `Chunk` gathers the fixed fields of its records once, finds each variable part from
the lengths before it, and builds the requested columns.
"""

import ipaddress
from collections.abc import Callable
from copy import copy
from dataclasses import dataclass
from typing import ClassVar, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from spark.decode import inner_batches
from spark.decode.binary_array import as_text
from spark.decode.columns import COLUMN_TYPES, TIMESTAMP
from spark.decode.damage import Damage
from spark.decode.engine import IS_COMPILED, gather
from spark.decode.inflate import compression_names, inflate_bodies
from spark.decode.record_parts import RecordParts
from spark.files.segment import Positions, Segment
from sprocket.common.limits import MAX_INFLATED_BYTES
from sprocket.remoting.message.record import IPV4_HOST_BYTES, IPV6_HOST_BYTES, SysFlag
from sprocket.remoting.message.topic_names import SCHEDULE_TOPIC, TIMER_TOPIC, TRANS_HALF_TOPIC
from store.layout import MAGIC_V1, MAGIC_V2, RECORD_FIXED_DTYPE, STORE_TIMESTAMP
from store.record.checksum import NO_SEAL
from store.scan.engine import claimed_crcs, crcs_hold

# Small enough that records and columns stay in the processor's cache.  Arrays have a fixed cost for each chunk.
CHUNK_ROWS: Final = 4096 if IS_COMPILED else 16384
_MAX_TIMESTAMP_MS: Final = 253_402_300_799_999  # the end of the year 9999, the last of Python's dates

# Its records are halves of transactions: a committed message is stored again in its own topic.
HALF_TOPIC: Final = TRANS_HALF_TOPIC.encode()
# Messages wait in these for the topic that their property REAL_TOPIC names.
WAITING_TOPICS: Final = (SCHEDULE_TOPIC, TIMER_TOPIC, TRANS_HALF_TOPIC)


@dataclass(frozen=True)
class DecodeOptions:
    """Settings of a query, besides its columns.

    `drop_malformed`: skip damage; with `corrupt_column`, damage also becomes rows.  `check_crc` None: check only if
    bodies are read.
    """

    broker_name: str = ""
    inflate_bodies: bool = False
    inflate_max_bytes: int = MAX_INFLATED_BYTES
    drop_malformed: bool = False
    corrupt_column: str | None = None
    read_uncommitted: bool = False
    check_crc: bool | None = None


class Chunk(RecordParts):
    """Columns of the records of `segment` at `positions` (in order); a record with a batch gives several rows.

    Records of uncommitted transactions (prepared halves and rollback marks) are left out, as in the ConsumeQueue,
    unless
    `read_uncommitted`.  A damaged record raises CorruptRecord; with `drop_malformed` it is left out and added to
    `damage`.
    """

    # Whether a CRC of the whole record counts, if there is one.
    has_seals: ClassVar[bool] = True

    def __init__(self, segment: Segment, positions: Positions, options: DecodeOptions) -> None:
        super().__init__(segment, positions)
        self._options = options
        self.damage: list[Damage] = []
        self._inflated: pa.Array | None = None
        # Positions of records whose lengths, magic or own offset do not hold.
        self.malformed = positions[:0]
        if self.compiled is None:
            self._leave_out_malformed()
        if not options.read_uncommitted:
            self._leave_out_uncommitted()
        self._unwrap_batches()

    def column(self, name: str) -> pa.Array:
        """Return the column `name` of `COLUMN_TYPES`.  Every call decodes it again; `filter` keeps shared parts."""
        return _COLUMNS[name](self)

    def topic_numbers(self, topics: pa.Array) -> npt.NDArray[np.int32]:
        """Return, for each row, the index of its record's topic in `topics`, -1 if it is not there."""
        found = pc.index_in(self.column("topic"), value_set=topics)
        numbers: npt.NDArray[np.int32] = pc.fill_null(found, -1).to_numpy()
        return numbers

    def check_crc(self) -> None:
        """Leave out, or raise for, records whose CRC does not hold."""
        holds = self.compiled.crcs_hold() if self.compiled is not None and self.has_seals else self._crcs_hold()
        if not holds.all():
            self._leave_out(~holds, "the CRC does not hold")

    def _crcs_hold(self) -> npt.NDArray[np.bool_]:
        first, of_row = self.records() if self.inner is not None else (slice(None), slice(None))
        begins, ends = self.stored_body_bounds
        holds = crcs_hold(
            memoryview(self.segment.data),
            self.positions[first],
            self.ends[first],
            (begins[first], ends[first]),
            self.integers("body_crc")[first],
            self._claimed_crcs(first),
        )
        return holds[of_row]

    def _claimed_crcs(self, first: slice | Positions) -> Positions:
        """Return the CRCs in the seals of the records of these rows."""
        if not self.has_seals:
            return np.full(self.positions[first].size, NO_SEAL, np.int64)
        begins, ends = self.stored_properties_bounds
        return claimed_crcs(self._octets(), (ends - begins)[first], ends[first])

    def inflate(self) -> None:
        """Inflate bodies for the columns that need them.

        Leaves out, or raises for, bodies that cannot be inflated.  Raises InflatesTooMuch if several bodies are too
        large together; read the `halves` in turn then.
        """
        if not self._options.inflate_bodies:
            return
        bodies, failed = inflate_bodies(self._bodies(), self.sys_flags, self._options.inflate_max_bytes)
        if failed:
            for row, reason in failed.items():
                self._note(np.array([row]), reason)
            keep = np.ones(len(self), np.bool_)
            keep[list(failed)] = False
            bodies = bodies.filter(pa.array(keep))
            self.filter(keep)
        self._inflated = bodies

    def halves(self) -> "tuple[Chunk, Chunk]":
        """Return the first and the second half of the rows; `damage` stays with the first."""
        first, second = copy(self), copy(self)
        second.damage = []
        in_first = np.arange(len(self)) < len(self) // 2
        first.filter(in_first)
        second.filter(~in_first)
        return first, second

    # -- which records count -----------------------------------------------------------------------------

    def _leave_out(self, bad: npt.NDArray[np.bool_], reason: str) -> None:
        self._note(np.flatnonzero(bad), reason)
        self.filter(~bad)

    def _note(self, rows: Positions, reason: str) -> None:
        """Add rows to the damage.  Raises CorruptRecord unless the read skips damage."""
        at, first = np.unique(self.positions[rows], return_index=True)
        sizes = self.integers("total_size")[rows[first]]
        found = [
            Damage(begin, size, reason, self.segment.path)
            for begin, size in zip(self._physical_offsets(at).tolist(), sizes.tolist(), strict=True)
        ]
        if not self._options.drop_malformed:
            raise found[0].error()
        self.damage += found

    def _physical_offsets(self, positions: Positions) -> Positions:
        """Return the physical offsets of the records at these positions."""
        return positions + self.segment.start

    def _leave_out_malformed(self) -> None:
        holds = self._well_formed()
        if not holds.all():
            self.malformed = self.positions[~holds]
            self._leave_out(~holds, "the record's lengths, magic or own offset do not hold")

    def _leave_out_uncommitted(self) -> None:
        left_out = self._halves()
        if self.all_flags & SysFlag.TRANSACTION_ROLLBACK:
            state = self.sys_flags & SysFlag.TRANSACTION_ROLLBACK
            left_out = np.union1d(left_out, np.flatnonzero((state != 0) & (state != SysFlag.TRANSACTION_COMMIT)))
        if left_out.size:
            keep = np.ones(len(self), np.bool_)
            keep[left_out] = False
            self.filter(keep)

    def _halves(self) -> Positions:
        """Return the rows of the topic of halves."""
        if self.compiled is not None and not self.compiled.has_halves:
            return self.positions[:0]
        begins, ends = self.topic_bounds
        alike = np.flatnonzero(ends - begins == len(HALF_TOPIC))
        if not alike.size:
            return alike
        kind = f"S{len(HALF_TOPIC)}"
        every = np.ndarray((self.segment.size - len(HALF_TOPIC) + 1,), kind, self.segment.data, 0, (1,))
        is_half: npt.NDArray[np.bool_] = every[begins[alike]] == HALF_TOPIC
        return alike[is_half]

    def _unwrap_batches(self) -> None:
        if not inner_batches.may_hold(self.all_flags):
            return
        is_batch = inner_batches.batches(self.sys_flags)
        if not is_batch.any():
            return
        found = inner_batches.unwrap(memoryview(self.segment.data), is_batch, *self.stored_body_bounds)
        if found.broken.size:
            self._note(found.broken, "the batch in the record's body does not add up")
        self.inner, self.places = found.begins, found.places
        self.take(self.positions[found.records])

    def _well_formed(self) -> npt.NDArray[np.bool_]:
        magics, ends = self.integers("magic"), self.ends
        topic, properties = self.topic_bounds, self.stored_properties_bounds
        holds: npt.NDArray[np.bool_] = properties[1] == ends
        holds &= self.integers("physical_offset") == self.positions + self.segment.start
        holds &= self.integers("body_length") >= 0
        holds &= topic[1] >= topic[0]
        holds &= properties[1] >= properties[0]
        holds &= ends <= self.segment.size
        holds &= (magics == MAGIC_V1) | (magics == MAGIC_V2)
        return holds

    # -- columns -----------------------------------------------------------------------------------------

    def bodies(self) -> pa.Array:
        return self._bodies() if self._inflated is None else self._inflated

    def _bodies(self) -> pa.Array:
        return gather(self.buffer, *self.body_bounds)

    def queue_offsets(self) -> pa.Array:
        offsets = self.integers("queue_offset")
        return pa.array(offsets if self.places is None else offsets + self.places, pa.int64())

    def flags(self) -> pa.Array:
        flags = self.integers("flag")
        if self.inner is not None:
            every = np.ndarray((self.segment.size - 3,), ">i4", self.segment.data, 0, (1,))
            inner = every[np.maximum(self.inner, 0) + inner_batches.FLAG_AT]
            flags = np.where(self.inner >= 0, inner, flags).astype(np.int32)
        return pa.array(flags)

    def real_topics(self) -> pa.Array:
        topics, real = self.column("topic"), self.property_values(b"REAL_TOPIC")
        return pc.if_else(pc.and_(self._are_waiting(topics), pc.is_valid(real)), real, topics)

    def real_queue_ids(self) -> pa.Array:
        own, real = self.column("queueId"), self.property_values(b"REAL_QID")
        is_number = pc.fill_null(pc.match_substring_regex(real, r"^[0-9]{1,9}$"), False)
        numbers = pc.if_else(is_number, real, pa.scalar("0")).cast(pa.int32())
        return pc.if_else(pc.and_(self._are_waiting(self.column("topic")), is_number), numbers, own)

    @staticmethod
    def _are_waiting(topics: pa.Array) -> pa.Array:
        return pc.is_in(topics, value_set=pa.array(WAITING_TOPICS, pa.string()))

    def broker_names(self) -> pa.Array:
        return pa.repeat(pa.scalar(self._options.broker_name), len(self))

    def message_ids(self) -> pa.Array:
        ids = self.property_values(b"UNIQ_KEY")
        return pc.fill_null(ids, self._offset_message_ids()) if ids.null_count else ids

    def _offset_message_ids(self) -> pa.Array:
        """Return store host, port and physical offset in hexadecimal (`MessageDecoder.createMessageId`)."""
        offsets = self._physical_offsets(self.positions).tolist()
        hosts = self._host_bytes("store_host")
        return pa.array(
            [f"{host.hex()}{at:016x}".upper() for host, at in zip(hosts, offsets, strict=True)], pa.string()
        )

    def hosts(self, field: str) -> pa.Array:
        texts: dict[bytes, str] = {}
        hosts = self._host_bytes(field)
        for host in set(hosts):
            address = ipaddress.ip_address(host[:-4])
            text = f"[{address}]" if address.version == 6 else str(address)
            texts[host] = f"{text}:{int.from_bytes(host[-4:], 'big', signed=True)}"
        return pa.array([texts[host] for host in hosts], pa.string())

    def _host_bytes(self, field: str) -> list[bytes]:
        """Return address and port of each record as stored: 8 or 20 bytes."""
        is_store = field == "store_host"
        flag = SysFlag.STORE_HOST_V6 if is_store else SysFlag.BORN_HOST_V6
        begins = self.positions + RECORD_FIXED_DTYPE.itemsize
        if is_store:
            begins = begins + IPV4_HOST_BYTES + STORE_TIMESTAMP.size + self.born_shift
        sizes = np.where(self.sys_flags & flag, IPV6_HOST_BYTES, IPV4_HOST_BYTES)
        hosts: list[bytes] = self.parts((begins, begins + sizes)).to_pylist()
        return hosts

    def timestamps(self, field: str) -> pa.Array:
        """Return the milliseconds of `field` as timestamps, null where they are no date."""
        milliseconds = self.integers(field)
        validity = None
        if milliseconds.size and not 0 <= int(milliseconds.min()) <= int(milliseconds.max()) <= _MAX_TIMESTAMP_MS:
            valid = (milliseconds >= 0) & (milliseconds <= _MAX_TIMESTAMP_MS)
            validity = pa.py_buffer(np.packbits(valid, bitorder="little"))
        microseconds = pa.py_buffer(milliseconds * 1000)
        return pa.Array.from_buffers(TIMESTAMP, milliseconds.size, [validity, microseconds])

    def sizes(self) -> pa.Array:
        begins, ends = self.body_bounds
        return pa.array((ends - begins).astype(np.int32), pa.int32())


def _fixed(field: str) -> Callable[[Chunk], pa.Array]:
    return lambda chunk: pa.array(chunk.integers(field))


_COLUMNS: Final[dict[str, Callable[[Chunk], pa.Array]]] = {
    "topic": lambda chunk: as_text(chunk.topics()),
    "queueId": _fixed("queue_id"),
    "queueOffset": Chunk.queue_offsets,
    "physicalOffset": _fixed("physical_offset"),
    "bornTimestamp": lambda chunk: chunk.timestamps("born_timestamp"),
    "storeTimestamp": lambda chunk: chunk.timestamps("store_timestamp"),
    "tags": lambda chunk: chunk.property_values(b"TAGS"),
    "keys": lambda chunk: chunk.property_values(b"KEYS"),
    "body": Chunk.bodies,
    "brokerName": Chunk.broker_names,
    "properties": lambda chunk: chunk.properties.maps(),
    "msgId": Chunk.message_ids,
    "bodyString": lambda chunk: as_text(chunk.bodies()),
    "compression": lambda chunk: compression_names(chunk.sys_flags),
    "bodySize": Chunk.sizes,
    "storeSize": _fixed("total_size"),
    "bodyCRC": _fixed("body_crc"),
    "flag": Chunk.flags,
    "sysFlag": lambda chunk: pa.array(chunk.sys_flags),
    "bornHost": lambda chunk: chunk.hosts("born_host"),
    "storeHost": lambda chunk: chunk.hosts("store_host"),
    "reconsumeTimes": _fixed("reconsume_times"),
    "preparedTransactionOffset": _fixed("prepared_transaction_offset"),
    "realTopic": Chunk.real_topics,
    "realQueueId": Chunk.real_queue_ids,
}
assert _COLUMNS.keys() == COLUMN_TYPES.keys()
