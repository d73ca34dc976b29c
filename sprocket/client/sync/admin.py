"""The blocking administration client."""

import functools
import inspect
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar

from sprocket.client.admin.admin_client import AdminClient
from sprocket.client.sync.blocking import Blocking
from sprocket.remoting.credentials import Credentials
from sprocket.remoting.tls.settings import TlsSettings

T = TypeVar("T")


class Admin(Blocking[AdminClient]):
    """Asks name servers and brokers with the methods of `AdminClient`, blocking::

        topics = mq.admin.topic_list()

    Type checkers know the results in the form ``mq.admin(lambda aio: aio.topic_list())``, which does the same.
    """

    def __init__(
        self,
        namesrv: str | Sequence[str],
        *,
        timeout_s: float = 5.0,
        credentials: Credentials | None = None,
        tls: TlsSettings | None = None,
    ) -> None:
        super().__init__(AdminClient(namesrv, timeout_s=timeout_s, credentials=credentials, tls=tls))

    def __call__(self, ask: Callable[[AdminClient], Awaitable[T]]) -> T:
        """Return the outcome of what `ask` makes of the asyncio client."""

        async def work() -> T:
            return await ask(self._aio)

        return self._call(work())

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name.startswith("_") or not inspect.iscoroutinefunction(method := getattr(AdminClient, name, None)):
            raise AttributeError(f"Admin has no method {name!r}; it has those of AdminClient")

        @functools.wraps(method)
        def ask(*words: Any, **options: Any) -> Any:
            return self._call(method(self._aio, *words, **options))

        return ask

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *(name for name in dir(AdminClient) if not name.startswith("_"))})
