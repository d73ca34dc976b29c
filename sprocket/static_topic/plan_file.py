"""Files of plans, as RocketMQ's mqadmin writes and reads them with -mf.

Source: RocketMQ 5.3.3, `TopicQueueMappingUtils.writeToTemp`, `TopicRemappingDetailWrapper`.
"""

from sprocket.common.errors import ProtocolError
from sprocket.remoting.codec.fastjson import dumps, loads
from sprocket.static_topic.item_checks import MappingError
from sprocket.static_topic.plan import TopicRemappingDetailWrapper


def file_name(plan: TopicRemappingDetailWrapper, *, is_after: bool) -> str:
    """Return the name of a plan's file: ``TOPIC-EPOCH.before`` has the state before a change, ``.after`` that after."""
    return f"{plan.topic}-{plan.epoch}{'.after' if is_after else '.before'}"


def plan_bytes(plan: TopicRemappingDetailWrapper) -> bytes:
    """Return the content of a plan's file: JSON with every key in quotes, which RocketMQ reads, too."""
    return dumps(plan, standard=True)


def read_plan(data: bytes) -> TopicRemappingDetailWrapper:
    """Return the plan in a file's content.  Raises MappingError."""
    try:
        return loads(data, TopicRemappingDetailWrapper)
    except ProtocolError as error:
        raise MappingError(f"no plan for a static topic: {error}") from None
