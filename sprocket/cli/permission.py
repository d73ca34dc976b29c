"""Refusals for lack of permission: who is told, and what.

A consumer survives refusals, because an operator may grant what it lacks while it runs.  A person at a command line
wants to be told at once.
"""

import os
from collections.abc import Iterator

from sprocket.client.admin.admin_client import AdminClient, AdminError
from sprocket.client.consume.subscription import subscription
from sprocket.client.errors import ClientError
from sprocket.processes.cluster_watch import TOOLS_FILE, is_refusal
from sprocket.remoting.bodies.client import CheckClientRequestBody
from sprocket.remoting.codec.fastjson import dumps
from sprocket.remoting.codes import RequestCode, ResponseCode
from sprocket.remoting.credentials import Credentials

# In the remark of a broker or a topic without the permission itself, whoever asks.
_FOR_EVERYBODY = "is forbidden"


def refusal_in(error: BaseException) -> BaseException | None:
    """The refusal for lack of permission that led to `error`, if one did."""
    return next((each for each in _causes(error) if is_refusal(each)), None)


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__


def refusal_text(refusal: BaseException, credentials: Credentials | None) -> str:
    """What a server said, and which account it was asked by."""
    said = str(refusal).rstrip(". \n")
    if _FOR_EVERYBODY in said:
        return said
    if credentials is not None:
        return f"{said}. The request was signed by {credentials.access_key}, the account in {TOOLS_FILE}"
    if os.environ.get("ROCKETMQ_HOME"):
        return f"{said}. The request was not signed: {TOOLS_FILE} names no account"
    return f"{said}. The request was not signed: set ROCKETMQ_HOME and name an account in {TOOLS_FILE}"


async def check_may_consume(admin: AdminClient, topic: str, expression: str, group: str) -> None:
    """Ask every broker of `topic` what needs the same permissions as the pulls of `group`.

    Raises AdminError when one refuses for lack of them.  The consumer itself deals with a topic that does not exist yet
    and with a broker that does not answer.
    """
    try:
        route = await admin.topic_route(topic)
    except AdminError as error:
        if error.code == ResponseCode.TOPIC_NOT_EXIST:
            return
        raise
    body = dumps(CheckClientRequestBody("sprocket-consume", group, subscription(topic, expression, 0)))
    for broker in route.broker_datas:
        for address in broker.broker_addrs.values():
            try:
                await admin.ask(address, RequestCode.CHECK_CLIENT_CONFIG, body=body)
            except ClientError as error:
                if is_refusal(error):
                    raise
