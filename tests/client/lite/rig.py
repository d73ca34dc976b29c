"""A parent topic and groups of its lite topics."""

from sprocket import AdminClient, LiteConsumer, PoppedMessage, SubscriptionGroupConfig

WAIT_S = 20.0


class Channels:
    """Names: a topic of type LITE, and groups that are bound to it."""

    def __init__(self, number: int) -> None:
        self.topic = f"Lite{number}"
        self.exclusive = f"lite-exclusive-{number}"
        self.shared = f"lite-shared-{number}"
        self.wildcard = f"lite-wildcard-{number}"

    async def create(self, admin: AdminClient, broker: str) -> None:
        await admin.create_session_topic(self.topic, self.exclusive, queues=4)
        await admin.create_session_topic(self.topic, self.shared, exclusive=False, queues=4)
        attributes = {"+lite.bind.topic": self.topic, "+lite.sub.wildcard": "true"}
        await admin.create_group(broker, SubscriptionGroupConfig(self.wildcard, attributes=attributes))


async def taken(consumer: LiteConsumer, count: int) -> list[PoppedMessage]:
    """The next messages of an iteration, each acknowledged before the next one."""
    found = []
    async for message in consumer:
        found.append(message)
        await message.ack()
        if len(found) == count:
            break
    return found
