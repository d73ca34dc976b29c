"""What the pops of one topic by one group with one subscription have in common, checked once until it changes."""

from types import ModuleType
from typing import Any, Final

from broker.config.live_config import LiveConfig
from broker.core import BrokerCore
from broker.filter.subscription_filter import TagFilter
from broker.pop.pop_checks import PopChecks
from broker.pop.pop_filters import PopFilters, stated
from broker.pop.revive.revive_log import ReviveLog
from sprocket.common.errors import RequestError
from sprocket.remoting.message.pop_extra_info import retry_kind
from sprocket.remoting.message.topic_names import is_light

# The store looks for a seal in properties with this character.
_HASH: Final = b"#"


class PopLanes:
    """Maker of the lanes of usual pops."""

    def __init__(
        self, core: BrokerCore, checks: PopChecks, filters: PopFilters, log: ReviveLog, engine: ModuleType
    ) -> None:
        self._topics = core.topics
        self._groups = core.groups
        self._reads = core.store.usual_reads
        self._checks = checks
        self._filters = filters
        self._log = log
        self._engine = engine

    def lane(self, group: str, topic: str, expression: str | None, expression_type: str | None) -> Any:
        """Return the `PopLane` of a group and a topic; None if the Python path must serve its pops."""
        group_config, topic_config = self._groups.get(group), self._topics.get(topic)
        if group_config is None or topic_config is None or is_light(topic):
            return None
        if not self._checks.may_pop(topic_config, group_config):
            return None
        queues = self._reads.queues(topic, range(topic_config.read_queue_nums))
        form = self._log.checkpoint_form(topic, group)
        if None in queues or form is None or any(_HASH in part for part in form.properties):
            return None
        expression, expression_type = stated(expression, expression_type)
        try:
            matches = self._filters.parsed(expression, expression_type)
        except RequestError:
            return None  # the Python path refuses each
        codes = None
        if matches is not None:
            codes = matches.few_codes(self._engine.MAX_CODES) if isinstance(matches, TagFilter) else None
            if codes is None:
                return None
        subscriptions = self._filters.subscriptions(topic, group, expression, expression_type)
        return self._engine.PopLane(
            group_config, topic_config, queues, codes, retry_kind(topic).encode(), form, subscriptions
        )


def may_be_usual(config: LiveConfig) -> bool:
    """Return whether pops need neither the buffer in memory nor the number of messages in flight."""
    broker = config.broker
    return not broker.enable_pop_buffer_merge and not broker.enable_pop_message_threshold
