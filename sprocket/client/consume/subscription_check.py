"""Check before the first pull that the brokers accept a consumer's filters.

Source: RocketMQ 5.3.3, `MQClientInstance.checkClientInBroker`.
"""

import logging
from collections.abc import Iterable

from sprocket.client.connection.client_instance import ClientInstance
from sprocket.client.connection.topic_route import subscribe_address
from sprocket.client.consume.subscription import is_sql
from sprocket.client.errors import ClientError, refusal
from sprocket.remoting.bodies.client import CheckClientRequestBody, SubscriptionData
from sprocket.remoting.codec.fastjson import dumps
from sprocket.remoting.codes import RequestCode, ResponseCode

logger = logging.getLogger(__name__)


async def check_subscriptions(instance: ClientInstance, group: str, subscriptions: Iterable[SubscriptionData]) -> None:
    """Ask every broker of each topic with an SQL92 filter; a broker that does not answer is skipped.

    Raises BrokerRefused if a broker does not filter by SQL92, or finds the expression invalid.
    """
    for data in subscriptions:
        if is_sql(data):
            try:
                route = await instance.route(data.topic)
            except ClientError as error:
                logger.info("event=filter_not_checked topic=%s reason=%r", data.topic, str(error))
                continue
            for broker_name in route.broker_addresses:
                await _check(instance, group, data, broker_name)


async def _check(instance: ClientInstance, group: str, data: SubscriptionData, broker_name: str) -> None:
    address, _ = subscribe_address(instance.broker_addresses(broker_name), 0)
    names = instance.names
    body = dumps(CheckClientRequestBody(instance.client_id, names.whole(group), names.whole_fields(data)))
    try:
        response = await instance.remoting.invoke(
            address, RequestCode.CHECK_CLIENT_CONFIG, None, body, timeout_s=instance.settings.api_timeout_s
        )
    except ClientError as error:
        logger.info("event=filter_not_checked topic=%s broker=%s reason=%r", data.topic, broker_name, str(error))
        return
    if response.code != ResponseCode.SUCCESS:
        raise refusal(response.code, response.remark, address)
