"""Router of FastAPI whose subscribers are members of groups, with FastAPI's dependencies::

    from fastapi import FastAPI
    from sprocket.contrib.faststream.fastapi import SprocketRouter

    router = SprocketRouter("127.0.0.1:9876")

    @router.subscriber("Orders", group="billing")
    async def bill(order: Order, database: Annotated[Database, Depends(database)]) -> None: ...

    @router.post("/orders")
    async def order(order: Order) -> None:
        await router.broker.publish(order, "Orders")

    app = FastAPI()
    app.include_router(router)

The application's lifespan starts and stops the broker.  Names and arguments follow the routers of FastStream's other
brokers, such as ``faststream.kafka.fastapi``.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import Enum
from typing import Annotated, Any, Final, Literal, TypedDict, Unpack, cast, overload

from sprocket.common.extras import missing_package

try:
    from fastapi import params
    from fastapi.datastructures import Default
    from fastapi.routing import APIRoute
    from faststream._internal.fastapi.context import Context, ContextRepo, Logger
    from faststream._internal.fastapi.router import StreamRouter
    from starlette.responses import Response
    from starlette.routing import BaseRoute
    from starlette.types import ASGIApp, Lifespan
except ModuleNotFoundError as error:
    what = "sprocket.contrib.faststream.fastapi"
    raise ImportError(missing_package(error, what) or str(error), name=error.name) from error

from fast_depends.library.serializer import SerializerProto
from faststream._internal.basic_types import LoggerProto
from faststream._internal.context import repository
from faststream._internal.parser import CodecProto
from faststream._internal.types import BrokerMiddleware, CustomCallable
from faststream.middlewares import AckPolicy
from faststream.specification.base import SpecificationFactory
from faststream.specification.schema import Tag, TagDict

from sprocket.client import connect
from sprocket.client.connection.client_instance import ClientSettings
from sprocket.client.message import ReceivedMessage
from sprocket.contrib.faststream import broker as brokers
from sprocket.contrib.faststream import message
from sprocket.contrib.faststream.message import Batch
from sprocket.contrib.faststream.publisher import SprocketBatchPublisher, SprocketPublisher
from sprocket.contrib.faststream.registrator import CommonSubscriberOptions, PublisherOptions
from sprocket.contrib.faststream.subscriber import SprocketBatchSubscriber, SprocketSubscriber

__all__ = [
    "Connection",
    "Context",
    "ContextRepo",
    "Logger",
    "SprocketBatchMessage",
    "SprocketBroker",
    "SprocketMessage",
    "SprocketRouter",
]

# Types of handler arguments, which FastAPI's dependencies fill from FastStream's context.  A route has no context.
SprocketMessage = Annotated[message.SprocketMessage, Context("message")]
SprocketBatchMessage = Annotated[message.SprocketBatchMessage, Context("message")]
SprocketBroker = Annotated[brokers.SprocketBroker, Context("broker")]
Connection = Annotated[connect.Connection, Context("broker._connection")]


class RouterOptions(TypedDict, total=False):
    """Arguments of `SprocketBroker`, of FastStream's routers and of FastAPI's `APIRouter`, with their defaults."""

    client: ClientSettings | None
    graceful_timeout: float | None
    ack_policy: AckPolicy
    decoder: CustomCallable | None
    parser: CustomCallable | None
    codec: CodecProto | None
    middlewares: Sequence[BrokerMiddleware[Any, Any]]
    serializer: SerializerProto | None
    description: str | None
    logger: LoggerProto | None
    log_level: int
    specification: SpecificationFactory | None
    specification_tags: Iterable[Tag | TagDict]
    setup_state: bool
    schema_url: str | None

    prefix: str
    tags: list[str | Enum] | None
    dependencies: Sequence[params.Depends] | None
    default_response_class: type[Response]
    responses: dict[int | str, dict[str, Any]] | None
    callbacks: list[BaseRoute] | None
    routes: list[BaseRoute] | None
    redirect_slashes: bool
    default: ASGIApp | None
    dependency_overrides_provider: Any | None
    route_class: type[APIRoute]
    on_startup: Sequence[Callable[[], Any]] | None
    on_shutdown: Sequence[Callable[[], Any]] | None
    lifespan: Lifespan[Any] | None
    deprecated: bool | None
    include_in_schema: bool
    generate_unique_id_function: Callable[[APIRoute], str]


class HandlerOptions(CommonSubscriberOptions, total=False):
    """Arguments of `subscriber` that do not decide its type."""

    dependencies: Sequence[params.Depends]
    response_model: Any
    response_model_include: set[str] | dict[str, Any] | None
    response_model_exclude: set[str] | dict[str, Any] | None
    response_model_by_alias: bool
    response_model_exclude_unset: bool
    response_model_exclude_defaults: bool
    response_model_exclude_none: bool


_HANDLER_DEFAULTS: Final[Mapping[str, Any]] = {
    "dependencies": (),
    "response_model": Default(None),
    "response_model_include": None,
    "response_model_exclude": None,
    "response_model_by_alias": True,
    "response_model_exclude_unset": False,
    "response_model_exclude_defaults": False,
    "response_model_exclude_none": False,
}


class SprocketRouter(StreamRouter[ReceivedMessage | Batch]):
    """Routes of FastAPI, and subscribers and publishers of a `SprocketBroker` of its own, `broker`."""

    broker_class = brokers.SprocketBroker
    broker: brokers.SprocketBroker

    def __init__(
        self,
        namesrv: str | Sequence[str] = "",
        *,
        context: repository.ContextRepo | None = None,
        **options: Unpack[RouterOptions],
    ) -> None:
        """`namesrv`, and `client` to `log_level`, are those of `SprocketBroker`; `specification_tags` are its `tags`.

        `schema_url` is the path of the AsyncAPI page, "/asyncapi" without it; None: no page.  `setup_state` puts the
        broker into the state of the application's lifespan.  `prefix` stands before paths, not before topics.  Raises
        IllegalArgument.
        """
        super().__init__(namesrv, context=context, **options)

    @overload  # type: ignore[override]  # every broker of FastStream has arguments of its own
    def subscriber(
        self, topic: str, *, group: str, batch: Literal[False] = False, **options: Unpack[HandlerOptions]
    ) -> SprocketSubscriber: ...

    @overload
    def subscriber(
        self, topic: str, *, group: str, batch: Literal[True], **options: Unpack[HandlerOptions]
    ) -> SprocketBatchSubscriber: ...

    @overload
    def subscriber(
        self, topic: str, *, group: str, batch: bool, **options: Unpack[HandlerOptions]
    ) -> SprocketSubscriber | SprocketBatchSubscriber: ...

    def subscriber(
        self, topic: str, *, group: str, batch: bool = False, **options: Unpack[HandlerOptions]
    ) -> SprocketSubscriber | SprocketBatchSubscriber:
        """Return a decorator of handlers, whose arguments are FastAPI's: models, `Depends`, `BackgroundTasks`.

        `response_model` and its companions shape the result, as those of a route.  The other arguments are those of
        `SprocketBroker.subscriber`.  Raises as it.
        """
        made = super().subscriber(topic, group=group, batch=batch, **{**_HANDLER_DEFAULTS, **options})
        return cast("SprocketSubscriber | SprocketBatchSubscriber", made)

    @overload  # type: ignore[override]  # as above
    def publisher(
        self, topic: str, *, batch: Literal[False] = False, **options: Unpack[PublisherOptions]
    ) -> SprocketPublisher: ...

    @overload
    def publisher(
        self, topic: str, *, batch: Literal[True], **options: Unpack[PublisherOptions]
    ) -> SprocketBatchPublisher: ...

    @overload
    def publisher(
        self, topic: str, *, batch: bool, **options: Unpack[PublisherOptions]
    ) -> SprocketPublisher | SprocketBatchPublisher: ...

    def publisher(
        self, topic: str, *, batch: bool = False, **options: Unpack[PublisherOptions]
    ) -> SprocketPublisher | SprocketBatchPublisher:
        """Return a publisher of `topic`, as `SprocketBroker.publisher`.  Raises as it."""
        return self.broker.publisher(topic, batch=batch, **options)
