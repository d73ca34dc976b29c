"""What a visitor is told if a page cannot be shown: the cause, and advice that fits it.  Pure."""

from collections.abc import Iterable
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Final

from dashboard.page import BadInput
from sprocket.client.errors import IllegalArgument, NameServerUnreachable, PermissionDenied, TopicNotFound
from sprocket.common.errors import ClientError
from sprocket.remoting.codes import ResponseCode

_MAX_NEAR: Final = 3


@dataclass(frozen=True)
class Refusal:
    """HTTP status, title, cause and advice.  `unknown_topic` is the name for which there is no topic."""

    status: int
    title: str
    what: str
    advice: str
    unknown_topic: str = ""


def refusal_of(error: ClientError | BadInput, topic: str) -> Refusal:
    """Return what to say of an error; `topic` is the one that was asked for, or empty."""
    if isinstance(error, BadInput | IllegalArgument):
        return Refusal(400, "Wrong input", str(error), "Correct it, and try again.")
    if isinstance(error, PermissionDenied):
        advice = "Log in as another user, or have an operator grant this right."
        return Refusal(403, "Not allowed", str(error), advice)
    code = getattr(error, "code", 0)
    if topic and (isinstance(error, TopicNotFound) or code == ResponseCode.TOPIC_NOT_EXIST):
        advice = f"Check the name. If it is right, create the topic: sprocket topic create {topic}"
        return Refusal(404, "No such topic", f"There is no topic {topic}.", advice, topic)
    if code is None or isinstance(error, NameServerUnreachable):
        advice = "Check that the server runs and can be reached from the dashboard, then try again."
        return Refusal(502, "A server does not answer", str(error), advice)
    return Refusal(502, "The cluster did not do this", str(error), "The server's reason is above; its log has more.")


def nearest(name: str, names: Iterable[str]) -> list[str]:
    """Return the names most like `name`, at most three, the most like one first."""
    lower, slack = name.lower(), max(2, len(name) // 3)
    spelling = {one.lower(): one for one in names if abs(len(one) - len(name)) <= slack}
    return [spelling[match] for match in get_close_matches(lower, spelling, _MAX_NEAR)]
