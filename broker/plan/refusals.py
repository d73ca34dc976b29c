"""Refusals that several planners and handlers make.  Source: RocketMQ 5.3.3, `PullMessageProcessor` and its like."""

from typing import Final

from broker.plan.table import PEER, Refused
from sprocket.common.refusal_reasons import Reason
from sprocket.remoting.bodies.topic import TopicConfig
from sprocket.remoting.codes import ResponseCode

FAQ: Final = "\nSee https://rocketmq.apache.org/docs/bestPractice/06FAQ for further details."


def unknown_topic(topic: str) -> Refused:
    """Return the refusal of a topic that does not exist."""
    return Refused(ResponseCode.TOPIC_NOT_EXIST, f"topic[{topic}] not exist, apply first please! {FAQ}")


def unknown_queue(config: TopicConfig, queue_id: int, code: ResponseCode = ResponseCode.INVALID_PARAMETER) -> Refused:
    """Return the refusal of a queue that consumers of a topic cannot read."""
    remark = (
        f"queueId[{queue_id}] is illegal, topic:[{config.topic_name}] "
        f"topicConfig.readQueueNums:[{config.read_queue_nums}] consumer:[{PEER}]"
    )
    return Refused(code, remark, Reason.QUEUE_NOT_EXIST)


def unknown_group(group: str) -> Refused:
    """Return the refusal of a consumer group that does not exist."""
    return Refused(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"subscription group [{group}] does not exist, {FAQ}")


def unknown_group_of_retry(group: str) -> Refused:
    """Return the same for a message that comes back from a consumer."""
    return Refused(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"subscription group not exist, {group} {FAQ}")
