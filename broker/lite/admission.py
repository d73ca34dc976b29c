"""Whether a group may consume lite topics of a parent, and how.

Source: RocketMQ 5.5.1, `PopLiteMessageProcessor.preCheck`, `LiteSubscriptionCtlProcessor.checkConsumeEnable`,
`LiteManagerProcessor`.
"""

from broker.core import BrokerCore
from broker.plan.refusals import FAQ, unknown_topic
from broker.subscription.group_attributes import LiteGroup, lite_group
from broker.topic.attributes import lite_expiration_minutes
from sprocket.common.errors import RequestError
from sprocket.remoting.bodies.topic import PERM_READ
from sprocket.remoting.codes import ResponseCode


class LiteAdmission:
    """Decides about topics and groups, in the event loop's thread."""

    def __init__(self, core: BrokerCore) -> None:
        self._config = core.config
        self._topics = core.topics
        self._groups = core.groups

    @property
    def is_enabled(self) -> bool:
        """Whether the broker has light queues."""
        store = self._config.store
        return store.enable_lmq and store.enable_multi_dispatch

    def check_enabled(self) -> None:
        """Raise RequestError if the broker has no light queues."""
        if not self.is_enabled:
            remark = "this broker has no lite topics: set enableLmq and enableMultiDispatch to true"
            raise RequestError(ResponseCode.INVALID_PARAMETER, remark)

    def how(self, group: str) -> LiteGroup | None:
        """Return how a group consumes lite topics; None if it does not."""
        config = self._groups.get(group)
        return None if config is None else lite_group(config.attributes)

    def check_subscriber(self, parent: str, group: str) -> LiteGroup:
        """Return how a group consumes lite topics of `parent`.  Raises RequestError.

        Beyond RocketMQ's broker the parent must be the one of the group, as RocketMQ's proxy asks.
        """
        self.check_enabled()
        config = self._groups.get(group)
        if config is None or not config.consume_enable:
            raise RequestError(ResponseCode.ILLEGAL_OPERATION, "Consumer group is not allowed to consume.")
        return self._bound(parent, group)

    def check_pop(self, parent: str, group: str, peer: tuple[str, int]) -> LiteGroup:
        """Return how a group consumes lite topics of `parent`, which it may read.  Raises RequestError."""
        self.check_enabled()
        broker = self._config.broker
        if not broker.broker_permission & PERM_READ:
            remark = f"the broker[{broker.broker_ip1}] pop message is forbidden"
            raise RequestError(ResponseCode.NO_PERMISSION, remark)
        topic = self._topics.get(parent)
        if topic is None:
            raise unknown_topic(parent).error(peer)
        if not topic.perm & PERM_READ:
            raise RequestError(ResponseCode.NO_PERMISSION, f"the topic [{parent}] peeking message is forbidden")
        if lite_expiration_minutes(topic.attributes) is None:
            raise RequestError(ResponseCode.INVALID_PARAMETER, f"the topic [{parent}] message type not match")
        config = self._groups.get(group)
        if config is None:
            remark = f"subscription group [{group}] not exist, {FAQ}"
            raise RequestError(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, remark)
        if not config.consume_enable:
            raise RequestError(ResponseCode.NO_PERMISSION, f"subscription group no permission, {group}")
        return self._bound(parent, group)

    def _bound(self, parent: str, group: str) -> LiteGroup:
        how = self.how(group)
        if how is None or how.parent != parent:
            raise RequestError(ResponseCode.INVALID_PARAMETER, f"subscription bind topic not match, {group}")
        return how

    def check_parent(self, parent: str) -> int:
        """Return the minutes after which idle lite topics of `parent` are deleted, -1: never.  Raises RequestError."""
        topic = self._topics.get(parent)
        if topic is None:
            raise RequestError(ResponseCode.TOPIC_NOT_EXIST, f"Topic [{parent}] not exist.")
        minutes = lite_expiration_minutes(topic.attributes)
        if minutes is None:
            raise RequestError(ResponseCode.INVALID_PARAMETER, f"Topic [{parent}] type not match.")
        return minutes

    def check_group(self, group: str) -> LiteGroup:
        """Return how a group consumes lite topics.  Raises RequestError."""
        if group not in self._groups:
            raise RequestError(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"Group [{group}] not exist.")
        how = self.how(group)
        if how is None:
            raise RequestError(ResponseCode.INVALID_PARAMETER, f"Group [{group}] is not a LITE group.")
        return how

    def expirations(self) -> dict[str, int]:
        """Return the parents, with the minutes after which their idle lite topics are deleted; -1: never."""
        found = {}
        for topic, config in self._topics.by_name.items():
            minutes = lite_expiration_minutes(config.attributes)
            if minutes is not None:
                found[topic] = minutes
        return found

    def groups_by_parent(self) -> dict[str, list[str]]:
        """Return the groups that consume lite topics, by parent."""
        found: dict[str, list[str]] = {}
        for group, config in self._groups.by_name.items():
            how = lite_group(config.attributes)
            if how is not None:
                found.setdefault(how.parent, []).append(group)
        return found
