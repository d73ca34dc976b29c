"""Settings of a client: what it reported, with what the proxy and its group's configuration say; pure.

Source: RocketMQ 5.5.0, `GrpcClientSettingsManager`.
"""

from proxy.config import ProxyConfig
from proxy.convert.lite_groups import lite_client_quota
from sprocket.grpc_wire import messaging_pb2 as wire
from sprocket.grpc_wire.times import duration
from sprocket.remoting.bodies.group import CustomizedRetryPolicy, ExponentialRetryPolicy, SubscriptionGroupConfig


def merged(reported: wire.Settings, group: SubscriptionGroupConfig | None, config: ProxyConfig) -> wire.Settings:
    """Return the settings to send to a client; `group` is None for producers and for groups that no broker knows."""
    settings = wire.Settings()
    settings.CopyFrom(reported)
    kind = settings.WhichOneof("pub_sub")
    if kind == "publishing":
        _add_publishing(settings, config)
    elif kind == "subscription":
        _add_subscription(settings, group or SubscriptionGroupConfig(""), config)
    _add_metric(settings, config)
    return settings


def _add_publishing(settings: wire.Settings, config: ProxyConfig) -> None:
    policy = settings.backoff_policy
    policy.max_attempts = config.grpc_client_producer_max_attempts
    policy.exponential_backoff.CopyFrom(
        wire.ExponentialBackoff(
            initial=duration(config.grpc_client_producer_backoff_initial_millis),
            max=duration(config.grpc_client_producer_backoff_max_millis),
            multiplier=config.grpc_client_producer_backoff_multiplier,
        )
    )
    settings.publishing.validate_message_type = config.enable_topic_message_type_check
    settings.publishing.max_body_size = config.max_message_size


def _add_subscription(settings: wire.Settings, group: SubscriptionGroupConfig, config: ProxyConfig) -> None:
    subscription, policy = settings.subscription, settings.backoff_policy
    subscription.receive_batch_size = config.grpc_client_consumer_long_polling_batch_size
    subscription.long_polling_timeout.CopyFrom(duration(config.grpc_client_consumer_max_long_polling_timeout_millis))
    subscription.fifo = group.consume_message_orderly
    subscription.lite_subscription_quota = lite_client_quota(group)
    subscription.max_lite_topic_size = config.max_lite_topic_size
    policy.max_attempts = max_attempts(group)
    retry = group.group_retry_policy
    if retry.type == "EXPONENTIAL":
        exponential = retry.exponential_retry_policy or ExponentialRetryPolicy()
        policy.exponential_backoff.CopyFrom(
            wire.ExponentialBackoff(
                initial=duration(exponential.initial),
                max=duration(exponential.max),
                multiplier=exponential.multiplier,
            )
        )
    else:
        customized = retry.customized_retry_policy or CustomizedRetryPolicy()
        policy.customized_backoff.CopyFrom(wire.CustomizedBackoff(next=[duration(delay) for delay in customized.next]))


def _add_metric(settings: wire.Settings, config: ProxyConfig) -> None:
    mode = config.metric_collector_mode.lower()
    metric = wire.Metric(on=mode in ("on", "proxy"))
    if mode == "on":
        host, _, port = config.metric_collector_address.rpartition(":")
        address = wire.Address(host=host, port=int(port))
        metric.endpoints.CopyFrom(wire.Endpoints(scheme=wire.IPv4, addresses=[address]))
    elif mode == "proxy":
        metric.endpoints.CopyFrom(settings.access_point)
    settings.metric.CopyFrom(metric)


def max_attempts(group: SubscriptionGroupConfig) -> int:
    """Return how often a message is delivered before it becomes a dead letter."""
    return group.retry_max_times + 1


def retry_delay_ms(group: SubscriptionGroupConfig, reconsume_times: int) -> int:
    """Return the delay before the next delivery after `reconsume_times` redeliveries.

    Source: RocketMQ 5.3.3, `ExponentialRetryPolicy.nextDelayDuration`, `CustomizedRetryPolicy.nextDelayDuration`.
    """
    retry = group.group_retry_policy
    if retry.type == "EXPONENTIAL":
        policy = retry.exponential_retry_policy or ExponentialRetryPolicy()
        times = min(max(reconsume_times, 0), 32)
        return min(policy.max, policy.initial * int(policy.multiplier**times))
    delays = (retry.customized_retry_policy or CustomizedRetryPolicy()).next
    return delays[min(max(reconsume_times, 0) + 2, len(delays) - 1)]
