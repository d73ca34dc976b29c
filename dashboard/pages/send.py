"""Send one message."""

from typing import Final

from dashboard.asking.names import offered_topics
from dashboard.page import BadInput, Page, PageRoute, Visit
from sprocket.client.connection.client_instance import ClientSettings
from sprocket.client.message import Message
from sprocket.client.producer import Producer

_GROUP: Final = "SPROCKET_DASHBOARD"
_MAX_BODY_CHARACTERS: Final = 64 * 1024
_MAX_DELAY_S: Final = 3 * 24 * 3600


async def show(visit: Visit) -> Page:
    """Show the form, as it was filled in."""
    return await _form(visit, None)


async def _form(visit: Visit, result: object) -> Page:
    fields = {name: visit.fields.get(name, "") for name in ("topic", "tag", "keys", "delay", "body")}
    topics = await offered_topics(visit.admin)
    return Page("send.html", {**fields, "topics": topics, "result": result, "max_body": _MAX_BODY_CHARACTERS})


async def send(visit: Visit) -> Page:
    """Send the message of the form."""
    body = visit.fields.get("body", "")
    if len(body) > _MAX_BODY_CHARACTERS:
        raise BadInput(f"the body has {len(body)} characters; allowed are {_MAX_BODY_CHARACTERS}")
    delay_s = visit.number("delay", 0, 0, _MAX_DELAY_S)
    message = Message(
        visit.needed("topic"),
        # Browsers send lines of a form with CR LF.
        body.replace("\r\n", "\n").encode(),
        tags=visit.text("tag"),
        keys=visit.text("keys").split(),
        delay=delay_s or None,
    )
    # A broker that creates topics on demand would make one of a mistyped name.
    await visit.admin.topic_route(message.topic)
    settings = visit.settings
    client = ClientSettings(
        namesrv=settings.name_servers,
        credentials=visit.credentials,
        tls=settings.tls,
        connect_timeout_s=settings.request_timeout_s,
        api_timeout_s=settings.request_timeout_s,
    )
    async with Producer(_GROUP, client=client) as producer:
        return await _form(visit, await producer.send(message))


ROUTES = (PageRoute("/send", show), PageRoute("/send/now", send, changes=True, form=show))
