"""The part of a connection that the loop's transport and the kernels call: compiled, or its twin here.

The compiled one serves usual reads and sends usual responses, and leaves all others to the same methods as the twin.
"""

from typing import TYPE_CHECKING, Final, Protocol

from sprocket.engine.choice import native
from sprocket.remoting.flow.shedding import LARGE_READ_BYTES
from sprocket.remoting.flow.unsent_output import COUNTED_BYTES

if TYPE_CHECKING:
    from sprocket.remoting.signatures_native import Proof


class ConnectionType(Protocol):
    """What both have."""

    def data_received(self, data: bytes, /) -> None:
        """Serve the frames of a read."""

    def answer_frames(
        self, request_code: int, count: int, frames: bytes, code: int, read_at: float, *, was_later: bool,
        at_once: bool = False,
    ) -> None:  # fmt: skip
        """Send the responses, with `code`, to `count` requests; see `routes.FramesChannel`."""

    def proof_of(self, code: int, /) -> "Proof | None":
        """Return what requests of `code` prove to be served without the guard; None if it must see them."""


class PythonConnection:
    """Twin of `sprocket.remoting.flow.connection_native.Connection`: every read and every response takes one way."""

    proofs: "dict[int, Proof]"

    def receive(self, data: bytes) -> None:
        """Serve the frames of any read."""
        raise NotImplementedError

    def send_frames(
        self, request_code: int, count: int, frames: bytes, code: int, read_at: float, *, was_later: bool,
        at_once: bool = False,
    ) -> None:  # fmt: skip
        """Send any responses as `answer_frames`."""
        raise NotImplementedError

    def data_received(self, data: bytes) -> None:
        """Serve the frames of a read."""
        self.receive(data)

    def answer_frames(
        self, request_code: int, count: int, frames: bytes, code: int, read_at: float, *, was_later: bool,
        at_once: bool = False,
    ) -> None:  # fmt: skip
        """Send the responses, with `code`, to `count` requests; see `routes.FramesChannel`."""
        self.send_frames(request_code, count, frames, code, read_at, was_later=was_later, at_once=at_once)

    def proof_of(self, code: int) -> "Proof | None":
        """Return what requests of `code` prove to be served without the guard; None if it must see them."""
        proof = self.proofs.get(code)
        return proof if proof is not None and proof.holds() else None


_compiled: Final = native("sprocket.remoting.flow.connection_native")
if _compiled is not None and min(LARGE_READ_BYTES, COUNTED_BYTES) < _compiled.SMALL_BYTES:
    raise ImportError("the compiled connection calls reads or responses small that are large: run `make engine`")
if TYPE_CHECKING or _compiled is None:
    Connection = PythonConnection
else:
    Connection = _compiled.Connection
_checked: type[ConnectionType] = Connection
