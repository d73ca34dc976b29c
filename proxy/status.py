"""Status of an answer: the codes of apache.rocketmq.v2, and which failure becomes which.

Source: RocketMQ 5.3.3, `ResponseBuilder`, `GrpcProxyException`, `TopicRouteHelper`.
"""

import logging
from typing import Final

from sprocket.client.errors import BrokerRefused, RemotingTimeout, TopicNotFound
from sprocket.common.errors import SprocketError
from sprocket.common.logs.peer_lines import peer_lines
from sprocket.grpc_wire import messaging_pb2 as wire
from sprocket.remoting.codes import ResponseCode
from sprocket.remoting.frames import FrameTooLarge

logger = logging.getLogger(__name__)

Code = wire.Code
_OF_RESPONSE: Final = {
    ResponseCode.SUCCESS: wire.OK,
    ResponseCode.SYSTEM_BUSY: wire.TOO_MANY_REQUESTS,
    ResponseCode.FLOW_CONTROL: wire.TOO_MANY_REQUESTS,  # beyond RocketMQ: a quota of the broker is used up
    ResponseCode.REQUEST_CODE_NOT_SUPPORTED: wire.NOT_IMPLEMENTED,
    ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST: wire.CONSUMER_GROUP_NOT_FOUND,
    ResponseCode.TOPIC_NOT_EXIST: wire.TOPIC_NOT_FOUND,
    ResponseCode.LMQ_QUOTA_EXCEEDED: wire.LITE_TOPIC_QUOTA_EXCEEDED,
    ResponseCode.LITE_SUBSCRIPTION_QUOTA_EXCEEDED: wire.LITE_SUBSCRIPTION_QUOTA_EXCEEDED,
}


class Refusal(SprocketError):
    """A call is answered with `code` and a message for the client."""

    def __init__(self, code: "wire.Code", message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


def status(code: "wire.Code", message: str = "") -> wire.Status:
    """Return a status; without a message it has the code's name, as in RocketMQ."""
    return wire.Status(code=code, message=message or wire.Code.Name(code))


OK: Final = status(wire.OK)
_ALL_OK: Final = {wire.OK}


def code_of(response_code: int) -> "wire.Code":
    """Return the code for the response code of a broker."""
    return (
        _OF_RESPONSE.get(ResponseCode(response_code), wire.INTERNAL_SERVER_ERROR)
        if (response_code in ResponseCode.__members__.values())
        else wire.INTERNAL_SERVER_ERROR
    )


def status_of(error: BaseException) -> wire.Status:
    """Return the status for a failure of a call.  A failure that nobody expected is logged here."""
    if isinstance(error, Refusal):
        return status(error.code, error.message)
    if isinstance(error, TopicNotFound):
        return status(wire.TOPIC_NOT_FOUND, str(error))
    if isinstance(error, BrokerRefused):
        return status(code_of(error.code), error.remark or str(error.code))
    if isinstance(error, FrameTooLarge):
        return status(wire.PAYLOAD_TOO_LARGE, str(error))
    if isinstance(error, RemotingTimeout):
        return status(wire.PROXY_TIMEOUT, str(error))
    if not isinstance(error, SprocketError):
        peer_lines.error(logger, "", "event=call_failed reason=%r", str(error), exc_info=error)
    return status(wire.INTERNAL_SERVER_ERROR, str(error))


def joint_status(codes: "set[wire.Code]", nothing: str) -> wire.Status:
    """Return the status of an answer with several entries: theirs if they agree; `nothing` says that there are none."""
    if codes == _ALL_OK:
        return OK
    if len(codes) > 1:
        return status(wire.MULTIPLE_RESULTS)
    return status(next(iter(codes))) if codes else status(wire.INTERNAL_SERVER_ERROR, nothing)
