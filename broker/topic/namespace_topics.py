"""New and changed topics in a namespace: what it allows, and what a new topic has because of it."""

from collections.abc import Iterable, Mapping
from copy import copy

from broker.namespace.namespaces import Namespaces, brought_along, count_in, refusal
from broker.topic.attributes import TOPIC_ATTRIBUTES, altered
from sprocket.common.errors import RequestError
from sprocket.remoting.bodies.namespace import NamespacePolicy
from sprocket.remoting.bodies.topic import MESSAGE_TYPE, TopicConfig
from sprocket.remoting.message.message_type import MessageType


def check_template(policy: NamespacePolicy) -> None:
    """Raise RequestError unless topics can have the attributes of a policy's template."""
    try:
        altered(None, _additions(policy))
    except RequestError as error:
        known = ", ".join(sorted(TOPIC_ATTRIBUTES))
        raise refusal(policy, f"topicAttributes: {error.remark}; attributes of topics are {known}") from None


def planned(
    namespaces: Namespaces, wanted: Iterable[TopicConfig], known: Mapping[str, TopicConfig]
) -> list[TopicConfig]:
    """Return the topics that an operator creates or changes, new ones with the attributes of their template.

    Their `attributes` are changes.  Raises RequestError if a namespace does not allow one of them, or all together.
    """
    made: list[TopicConfig] = []
    new: dict[str, set[str]] = {}
    for config in wanted:
        policy = namespaces.policy(config.topic_name)
        if policy is not None:
            if config.topic_name not in known:
                new.setdefault(policy.name, set()).add(config.topic_name)
                config = _with_template(policy, config)
            if not brought_along(config.topic_name):
                _check(policy, config, known.get(config.topic_name))
        made.append(config)
    for name, topics in new.items():
        _check_count(namespaces.by_name[name], topics, known)
    return made


def created_on_send(namespaces: Namespaces, config: TopicConfig, known: Mapping[str, TopicConfig]) -> TopicConfig:
    """Return a topic that its first send creates, as its namespace wants it.  Raises RequestError if it may not be."""
    policy = None if brought_along(config.topic_name) else namespaces.policy(config.topic_name)
    if policy is None:
        return config
    _check_count(policy, {config.topic_name}, known)
    queues = policy.topic_queues or config.write_queue_nums
    queues = min(queues, policy.max_queues) if policy.max_queues else queues
    made = copy(config)
    made.read_queue_nums = made.write_queue_nums = queues
    made.attributes = altered(None, _additions(policy))
    return made


def _additions(policy: NamespacePolicy) -> dict[str, str]:
    return {f"+{name}": value for name, value in policy.topic_attributes.items()}


def _with_template(policy: NamespacePolicy, config: TopicConfig) -> TopicConfig:
    if not policy.topic_attributes or brought_along(config.topic_name):
        return config
    made = copy(config)
    made.attributes = _additions(policy) | config.attributes
    return made


def _check_count(policy: NamespacePolicy, new: set[str], known: Iterable[str]) -> None:
    if not policy.max_topics:
        return
    if own := next(filter(brought_along, new), None):
        raise refusal(policy, f"with a limit of topics (maxTopics), only brokers create {own}, for its group")
    if (has := count_in(policy.name, known)) + len(new) > policy.max_topics:
        raise refusal(policy, f"it has {has} of at most {policy.max_topics} topics (maxTopics); delete one first")


def _check(policy: NamespacePolicy, config: TopicConfig, existing: TopicConfig | None) -> None:
    queues = max(config.read_queue_nums, config.write_queue_nums)
    before = 0 if existing is None else max(existing.read_queue_nums, existing.write_queue_nums)
    if policy.max_queues and queues > max(policy.max_queues, before):
        text = f"a topic has at most {policy.max_queues} queues (maxQueues)"
        raise refusal(policy, f"{text}, topic {config.topic_name} would have {queues}")
    attributes = altered(None if existing is None else existing.attributes, config.attributes)
    kind = attributes.get(MESSAGE_TYPE, MessageType.NORMAL)
    if policy.message_types and kind not in policy.message_types:
        text = f"topics are of type {' or '.join(policy.message_types)} (messageTypes), not {kind}"
        raise refusal(policy, text)
