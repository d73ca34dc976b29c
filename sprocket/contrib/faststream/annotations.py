"""Types of handler arguments that FastStream fills from its context."""

from typing import Annotated

from faststream.params import Context

from sprocket.contrib.faststream import message

# The message in work: `async def bill(order: Order, message: SprocketMessage)`.
SprocketMessage = Annotated[message.SprocketMessage, Context("message")]
# The same of a batch subscriber: `async def bill(orders: list[Order], message: SprocketBatchMessage)`.
SprocketBatchMessage = Annotated[message.SprocketBatchMessage, Context("message")]
