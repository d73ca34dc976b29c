"""Settings of pop.  Source of names and defaults: RocketMQ 5.3.3, `BrokerConfig`."""

from dataclasses import dataclass

from sprocket.common.config.setting_fields import bool_setting, int_setting


@dataclass(frozen=True)
class PopSettings:
    """Settings in `BrokerConfig` of pops, their acknowledgements and retry topics."""

    revive_queue_num: int = int_setting(
        8, "Queues of the topic that records pops and acknowledgements.", 1, maximum=999
    )
    revive_interval: int = int_setting(
        1_000,
        "Interval at which pops and acknowledgements are read, to find messages to redeliver.",
        1,
        "ms",
        mutable=True,
    )
    skip_when_ck_re_put_reach_max_times: bool = bool_setting(
        False,
        "Drop messages whose redelivery has failed 17 times in five hours.",
        mutable=True,
        key="skipWhenCKRePutReachMaxTimes",
    )
    enable_retry_topic_v2: bool = bool_setting(
        False, "Name retry topics of pop group+topic instead of group_topic.", mutable=True
    )
    retrieve_message_from_pop_retry_topic_v1: bool = bool_setting(
        True, "With enableRetryTopicV2: also pop from retry topics with the old name.", mutable=True
    )
    pop_from_retry_probability: int = int_setting(
        20, "Percentage of pops that read the retry topic first; the others read it last.", 0, maximum=100, mutable=True
    )
    pop_from_retry_probability_for_priority: int = int_setting(
        0, "The same for pops that obey priorities.", 0, maximum=100, mutable=True
    )
    priority_order_asc: bool = bool_setting(
        True, "Whether the highest priority is popped first; false: the lowest.", mutable=True
    )
    use_separate_retry_queue: bool = bool_setting(
        False,
        "Retry topics have as many queues as their topic, so that retries keep their priority; false: one queue.",
        mutable=True,
    )
    use_message_filter_for_notification: bool = bool_setting(
        True, "NOTIFICATION reports only messages that the subscription in it wants; false: any message.", mutable=True
    )
    max_message_filter_num_for_notification: int = int_setting(
        64,
        "NOTIFICATION reports a queue with this many messages or more without looking at their tags.",
        0,
        maximum=1024,
        mutable=True,
    )
    pop_response_return_actual_retry_topic: bool = bool_setting(
        False,
        "Deliver messages of a retry topic under its own name, not under that of the original topic.",
        mutable=True,
    )
    init_pop_offset_by_check_msg_in_mem: bool = bool_setting(
        True, "A new group that would start at the end of a short queue starts at its first message.", mutable=True
    )
    enable_pop_message_threshold: bool = bool_setting(
        False, "Limit the unacknowledged messages of a group in each queue.", mutable=True
    )
    pop_inflight_message_threshold: int = int_setting(
        10_000, "With enablePopMessageThreshold: max unacknowledged messages of a group in one queue.", 0, mutable=True
    )
    append_ck_async: bool = bool_setting(
        False, "Respond to pops before their checkpoint is safely stored.", mutable=True
    )
    append_ack_async: bool = bool_setting(False, "Respond to acknowledgements before they are on disk.", mutable=True)
    enable_pop_buffer_merge: bool = bool_setting(
        False, "Keep pops in memory for a while; a pop that is acknowledged in time is never written.", mutable=True
    )
    enable_pop_batch_ack: bool = bool_setting(
        False, "With enablePopBufferMerge: write the acknowledgements of one pop as one record.", mutable=True
    )
    pop_ck_stay_buffer_time: int = int_setting(10_000, "Max time that a pop stays in memory.", 1, "ms", mutable=True)
    pop_ck_stay_buffer_time_out: int = int_setting(
        3_000, "A pop in memory is written this long before its invisible time ends.", 1, "ms", mutable=True
    )
    pop_ck_max_buffer_size: int = int_setting(200_000, "Max pops in memory.", 0, mutable=True)
    pop_ck_offset_max_queue_size: int = int_setting(20_000, "Max pops of one queue in memory.", 0, mutable=True)
    subscription_expired_timeout: int = int_setting(
        600_000, "A subscription that only pops stated expires after this time without a pop.", 1, "ms", mutable=True
    )
