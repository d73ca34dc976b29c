"""One table that a master replicates besides the log."""

from collections.abc import Callable, Hashable
from dataclasses import dataclass

from sprocket.remoting.codes import RequestCode


def changes_name(table: str) -> str:
    """Return the name in the stream of what has the changes of a table alone."""
    return f"{table}Changes"


@dataclass(frozen=True)
class ReplicatedTable:
    """One table.  Everything is called in the event loop's thread, except `prepare`, which any thread may call.

    A request with `code` asks a master for what `encode` returns; None where RocketMQ has no such request.  `mark`
    differs when the table may have changed, and is cheap.  A table that `tells_deliveries` says which records of the
    log were delivered.  It is applied once the replica has the log that the master had when the table was read.
    Otherwise those messages would be lost when this replica becomes the one that delivers.

    A table that `is_early` requires nothing of the log: a slave has it before the next record.  So does one that
    `is_awaited`, but a slave has it so early only if somebody waits for that, else at the next look.  For one with
    `merge_changes` a master may send changes alone.  Then `encode_changes` returns what changed since a mark, for a
    slave that has the early table of that mark; None if that is not known any more.
    """

    name: str
    code: RequestCode | None
    mark: Callable[[], Hashable]
    encode: Callable[[], bytes]
    # Decodes what `encode` returned, and raises ProtocolError; calling its result replaces this table.
    prepare: Callable[[bytes], Callable[[], None]]
    tells_deliveries: bool = False
    is_early: bool = False
    is_awaited: bool = False
    encode_changes: Callable[[Hashable], bytes | None] = lambda _: None
    merge_changes: Callable[[bytes], None] | None = None

    def apply(self, content: bytes) -> None:
        """Replace this table by the master's; it is saved soon.  Raises ProtocolError."""
        self.prepare(content)()
