"""What a broker can be told about popping.  Source of names and defaults: RocketMQ 5.3.3, `BrokerConfig`."""

from dataclasses import dataclass

from sprocket.common.setting_fields import bool_setting, int_setting


@dataclass(frozen=True)
class PopSettings:
    """The part of `BrokerConfig` that is about pops, acknowledgements and retry topics of pop."""

    revive_queue_num: int = int_setting(
        "reviveQueueNum", 8, "Queues of the topic that keeps what is popped and acknowledged.", minimum=1, maximum=999
    )
    revive_interval: int = int_setting(
        "reviveInterval",
        1_000,
        "How often what was popped and acknowledged is read back, to find what comes again.",
        minimum=1,
        unit="ms",
        mutable=True,
    )
    skip_when_ck_re_put_reach_max_times: bool = bool_setting(
        "skipWhenCKRePutReachMaxTimes",
        False,
        "Give up messages that could not be handed out again after 17 tries over five hours.",
        mutable=True,
    )
    enable_retry_topic_v2: bool = bool_setting(
        "enableRetryTopicV2", False, "Name retry topics of pop group+topic in place of group_topic.", mutable=True
    )
    retrieve_message_from_pop_retry_topic_v1: bool = bool_setting(
        "retrieveMessageFromPopRetryTopicV1",
        True,
        "With enableRetryTopicV2, take from retry topics of the old name too.",
        mutable=True,
    )
    pop_from_retry_probability: int = int_setting(
        "popFromRetryProbability",
        20,
        "Of 100 pops so many look into the retry topic first, the others if there is room left.",
        minimum=0,
        maximum=100,
        mutable=True,
    )
    pop_response_return_actual_retry_topic: bool = bool_setting(
        "popResponseReturnActualRetryTopic",
        False,
        "Hand out messages of a retry topic under its name, not under that of the topic.",
        mutable=True,
    )
    init_pop_offset_by_check_msg_in_mem: bool = bool_setting(
        "initPopOffsetByCheckMsgInMem",
        True,
        "A group that begins at the end of a short queue gets it from its first message.",
        mutable=True,
    )
    enable_pop_message_threshold: bool = bool_setting(
        "enablePopMessageThreshold", False, "Bound what a group has popped of a queue at a time.", mutable=True
    )
    pop_inflight_message_threshold: int = int_setting(
        "popInflightMessageThreshold",
        10_000,
        "With enablePopMessageThreshold: no more pops of a queue while so many messages are unacknowledged.",
        minimum=0,
        mutable=True,
    )
    append_ck_async: bool = bool_setting(
        "appendCkAsync", False, "Answer pops before what they take is written down safely.", mutable=True
    )
    append_ack_async: bool = bool_setting(
        "appendAckAsync", False, "Answer acknowledgements before they are on the disk.", mutable=True
    )
    enable_pop_buffer_merge: bool = bool_setting(
        "enablePopBufferMerge",
        False,
        "Keep what is popped in memory for a while: acknowledged in time, it is never written.",
        mutable=True,
    )
    enable_pop_batch_ack: bool = bool_setting(
        "enablePopBatchAck",
        False,
        "With enablePopBufferMerge: write the acknowledgements of one pop as one record.",
        mutable=True,
    )
    pop_ck_stay_buffer_time: int = int_setting(
        "popCkStayBufferTime", 10_000, "So long a pop stays in memory at most.", minimum=1, unit="ms", mutable=True
    )
    pop_ck_stay_buffer_time_out: int = int_setting(
        "popCkStayBufferTimeOut",
        3_000,
        "A pop is written so long before its messages come again, at the latest.",
        minimum=1,
        unit="ms",
        mutable=True,
    )
    pop_ck_max_buffer_size: int = int_setting(
        "popCkMaxBufferSize", 200_000, "Pops in memory, at most.", minimum=0, mutable=True
    )
    pop_ck_offset_max_queue_size: int = int_setting(
        "popCkOffsetMaxQueueSize", 20_000, "Pops of one queue in memory, at most.", minimum=0, mutable=True
    )
    subscription_expired_timeout: int = int_setting(
        "subscriptionExpiredTimeout",
        600_000,
        "What pops say of their group's subscription is forgotten after this.",
        minimum=1,
        unit="ms",
        mutable=True,
    )
