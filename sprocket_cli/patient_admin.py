"""Admin client that waits for a name server, for commands typed right after ``mqnamesrv &``."""

import asyncio
from collections.abc import Sequence
from typing import Final

from sprocket.client.admin.admin_client import AdminClient
from sprocket.client.admin.admin_requests import NothingListens
from sprocket.remoting.codes import RequestCode
from sprocket.remoting.command import ReceivedResponse
from sprocket.remoting.credentials import Credentials
from sprocket.remoting.headers.base import Header
from sprocket.remoting.tls.settings import TlsSettings

START_LIMIT_S: Final = 5.0
_PAUSE_S: Final = 0.1


class PatientAdminClient(AdminClient):
    """Admin client that retries for `START_LIMIT_S` in total while a name server refuses connections.

    Of several name servers it waits only for the last one, because another may respond at once.
    """

    def __init__(
        self, name_servers: Sequence[str], *, credentials: Credentials | None = None, tls: TlsSettings | None = None
    ) -> None:
        super().__init__(name_servers, credentials=credentials, tls=tls)
        self._last = name_servers[-1]
        self._left_s = START_LIMIT_S

    async def ask(
        self, address: str, code: RequestCode, header: Header | None = None, body: bytes = b"", *,
        timeout_s: float | None = None,
    ) -> ReceivedResponse:  # fmt: skip
        """Return the response of the server at `address`.  Raises AdminError."""
        while True:
            try:
                return await super().ask(address, code, header, body, timeout_s=timeout_s)
            except NothingListens:
                if address != self._last or self._left_s <= 0:
                    raise
            self._left_s -= _PAUSE_S
            await asyncio.sleep(_PAUSE_S)
