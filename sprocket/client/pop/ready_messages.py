"""What a popping consumer keeps for its application."""

from collections.abc import Iterable, Iterator
from typing import Protocol

from sprocket.client.pop.popped_message import PoppedMessage


class ReadyMessages(Protocol):
    """Messages that wait for the application; the length is that of those that can be given."""

    def __len__(self) -> int: ...

    def __iter__(self) -> Iterator[PoppedMessage]:
        """Iterate over all that wait."""

    def popleft(self) -> PoppedMessage: ...

    def extend(self, batch: Iterable[PoppedMessage], /) -> object: ...

    def clear(self) -> None: ...
