"""One table that a master replicates besides the log."""

from collections.abc import Callable, Hashable
from dataclasses import dataclass

from sprocket.remoting.codes import RequestCode


@dataclass(frozen=True)
class ReplicatedTable:
    """One table.  Everything is called in the event loop's thread, except `prepare`, which any thread may call.

    A request with `code` asks a master for what `encode` returns; None where RocketMQ has no such request.  `mark`
    differs when the table may have changed, and is cheap.  A table that `tells_deliveries` says which records of the
    log were delivered.  It is applied once the replica has the log that the master had when the table was read.
    Otherwise those messages would be lost when this replica becomes the one that delivers.

    A table that `is_early` requires nothing of the log: a slave has it before the next record.  `encode_changes`
    returns what changed since a mark, for `merge_changes` of a slave that has the table of that mark; None if that is
    not known any more.
    """

    name: str
    code: RequestCode | None
    mark: Callable[[], Hashable]
    encode: Callable[[], bytes]
    # Decodes what `encode` returned, and raises ProtocolError; calling its result replaces this table.
    prepare: Callable[[bytes], Callable[[], None]]
    tells_deliveries: bool = False
    is_early: bool = False
    encode_changes: Callable[[Hashable], bytes | None] = lambda _: None
    merge_changes: Callable[[bytes], None] | None = None

    @property
    def changes_name(self) -> str:
        """Name of a table in the stream that has changes alone."""
        return f"{self.name}Changes"

    def apply(self, content: bytes) -> None:
        """Replace this table by the master's; it is saved soon.  Raises ProtocolError."""
        self.prepare(content)()
