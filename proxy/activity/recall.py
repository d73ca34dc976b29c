"""RecallMessage: a delayed message is taken back before its delivery.

Source: RocketMQ 5.3.3, `RecallMessageActivity`, `ProducerProcessor.recallMessage`.
"""

from proxy.activity.send import check_type
from proxy.brokers.brokers import TIMEOUT_S, Brokers
from proxy.brokers.metadata import Metadata
from proxy.config import ProxyConfig
from proxy.server.call import Call
from proxy.status import OK, Refusal
from proxy.validation import topic_of
from sprocket.client.answers import header_of
from sprocket.client.errors import IllegalMessage
from sprocket.client.send.recall import RecallHandle
from sprocket.grpc_wire import messaging_pb2 as wire
from sprocket.remoting.codes import RequestCode
from sprocket.remoting.headers.send import RecallMessageRequestHeader, RecallMessageResponseHeader


class RecallActivity:
    """Recalls of clients."""

    def __init__(self, brokers: Brokers, metadata: Metadata, config: ProxyConfig) -> None:
        self._brokers = brokers
        self._metadata = metadata
        self._config = config

    async def recall_message(self, call: Call, request: wire.RecallMessageRequest) -> wire.RecallMessageResponse:
        """Let the broker of a recall handle take its message back."""
        topic = topic_of(request.topic)
        if self._config.enable_topic_message_type_check:
            check_type(await self._metadata.message_type(topic), {"DELAY"})
        try:
            handle = RecallHandle.decode(request.recall_handle)
        except IllegalMessage as error:
            raise Refusal(wire.INTERNAL_SERVER_ERROR, str(error)) from None
        if not await self._brokers.is_known(handle.broker_name, topic):
            raise Refusal(wire.BAD_REQUEST, f"cannot find broker {handle.broker_name}")
        header = RecallMessageRequestHeader(topic=topic, recall_handle=request.recall_handle)
        response = await self._brokers.ask(handle.broker_name, RequestCode.RECALL_MESSAGE, header, timeout_s=TIMEOUT_S)
        answer = header_of(self._brokers.success(response, handle.broker_name), RecallMessageResponseHeader)
        return wire.RecallMessageResponse(status=OK, message_id=answer.msg_id)
