"""Refusals for lack of permission, reported at once to a person at a command line.

A consumer, by contrast, survives refusals: an operator may grant the permission while it runs.
"""

import os
from collections.abc import Iterator

from acl.tokens.token_text import masked
from sprocket.client.admin.admin_client import AdminClient, AdminError
from sprocket.client.consume.subscription import subscription
from sprocket.client.errors import ClientError
from sprocket.remoting.bodies.client import CheckClientRequestBody
from sprocket.remoting.codec.fastjson import dumps
from sprocket.remoting.codes import RequestCode, ResponseCode
from sprocket.remoting.credentials import Credentials
from sprocket_cli.processes.cluster_watch import TOOLS_FILE, is_refusal

# In the remark of a broker or topic that forbids the operation to every account.
_FOR_EVERYBODY = "is forbidden"


def refusal_in(error: BaseException) -> BaseException | None:
    """Return the refusal for lack of permission that caused `error`, None if there is none."""
    return next((each for each in _causes(error) if is_refusal(each)), None)


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__


def refusal_text(refusal: BaseException, credentials: Credentials | None) -> str:
    """Return the server's text, and the account that signed the request."""
    said = str(refusal).rstrip(". \n")
    if _FOR_EVERYBODY in said:
        return said
    if credentials is not None:
        account = masked(credentials.access_key)
        return f"{said}. The request was signed by {account}, the account in {TOOLS_FILE}"
    if os.environ.get("ROCKETMQ_HOME"):
        return f"{said}. The request was not signed: {TOOLS_FILE} names no account"
    return f"{said}. The request was not signed: set ROCKETMQ_HOME and name an account in {TOOLS_FILE}"


async def check_may_consume(admin: AdminClient, topic: str, expression: str, group: str) -> None:
    """Send every broker of `topic` a request that needs the same permissions as pulls of `group`.

    Raises AdminError if a broker refuses for lack of them.  A missing topic and a broker that does not respond are no
    errors: the consumer itself retries then.
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
