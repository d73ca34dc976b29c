"""Handlers for the accounts of ACL 1.0: `mqadmin updateAclConfig`, `deleteAclConfig`, `updateGlobalWhiteAddr`.

Source: RocketMQ 5.3.2, `AdminBrokerProcessor.updateAndCreateAccessConfig` and those beside it; 4.9.8,
`getBrokerClusterAclConfig`.  Different here: no response has a secret key, and only ``plain_acl.yml`` can be created.
"""

import asyncio
from collections.abc import Callable
from typing import Any, Final, ParamSpec, TypeVar

from acl.plain.changes import AccountChange
from acl.plain.files import PlainFiles
from broker.config.live_config import LiveConfig
from sprocket.common.clock import Clock
from sprocket.common.errors import ConfigError, RequestError
from sprocket.common.next_turn import to_its_end
from sprocket.remoting.bodies.topic import DataVersion
from sprocket.remoting.codec.fastjson import dumps
from sprocket.remoting.codes import RequestCode, ResponseCode
from sprocket.remoting.command import Request, Response
from sprocket.remoting.headers.base import to_ext_fields
from sprocket.remoting.headers.plain_acl import (
    CreateAccessConfigRequestHeader,
    DeleteAccessConfigRequestHeader,
    GetBrokerAclConfigResponseHeader,
    UpdateGlobalWhiteAddrsConfigRequestHeader,
)
from sprocket.remoting.routes import Action, NoHeader, Resource, Route

P = ParamSpec("P")
T = TypeVar("T")

# RocketMQ uses these codes twice, also as POLLING_FULL and its neighbours.
UPDATE_FAILED: Final = 209
DELETE_FAILED: Final = 210
WHITE_ADDRESSES_FAILED: Final = 211


class PlainAccountsProcessor:
    """Handler of operators' requests about accounts.  Lives in the event loop's thread."""

    def __init__(
        self,
        config: LiveConfig,
        files: PlainFiles | None,
        changed: Callable[[], None],
        clock: Clock,
    ) -> None:
        self._config = config
        self._files = files
        self._changed = changed
        self._clock = clock
        self._changing = asyncio.Lock()

    def routes(self) -> list[Route]:
        """The routes of this processor."""
        code, cluster = RequestCode, Resource.CLUSTER
        return [
            Route(
                code.UPDATE_AND_CREATE_ACL_CONFIG, CreateAccessConfigRequestHeader, self.put, cluster, Action.UPDATE
            ),
            Route(code.DELETE_ACL_CONFIG, DeleteAccessConfigRequestHeader, self.drop, cluster, Action.DELETE),
            Route(code.GET_BROKER_CLUSTER_ACL_INFO, NoHeader, self.versions, cluster, Action.GET),
            Route(
                code.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG, UpdateGlobalWhiteAddrsConfigRequestHeader,
                self.put_white_addresses, cluster, Action.UPDATE,
            ),
            Route(code.GET_BROKER_CLUSTER_ACL_CONFIG, NoHeader, self.accounts, cluster, Action.GET),
        ]  # fmt: skip

    async def put(self, request: Request[Any]) -> Response:
        """Create or change an account."""
        header: CreateAccessConfigRequestHeader = request.header
        try:
            if not header.secret_key:
                raise ConfigError(
                    f"The accessKey={header.access_key} needs its secretKey, also when something else changes"
                )
            change = AccountChange(
                header.access_key, header.secret_key, header.admin, header.white_remote_address,
                header.default_topic_perm, header.default_group_perm,
                _split(header.topic_perms), _split(header.group_perms),
            )  # fmt: skip
            await self._change(self._enabled().put_account, change, self._clock.wall_ms())
        except ConfigError as error:
            raise RequestError(UPDATE_FAILED, str(error)) from None
        self._changed()
        return Response(ResponseCode.SUCCESS)

    async def _change(self, change: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Make one change after the other, in a thread: it waits for the disk."""

        async def run() -> T:
            async with self._changing:
                return await asyncio.to_thread(change, *args, **kwargs)

        return await to_its_end(run())

    async def drop(self, request: Request[Any]) -> Response:
        """Delete an account."""
        access_key: str = request.header.access_key
        try:
            is_there = await self._change(self._enabled().drop_account, access_key, self._clock.wall_ms())
        except ConfigError as error:
            raise RequestError(DELETE_FAILED, str(error)) from None
        if not is_there:
            remark = f"The accessKey[{access_key}] corresponding to accessConfig has been deleted failed."
            raise RequestError(DELETE_FAILED, remark)
        self._changed()
        return Response(ResponseCode.SUCCESS)

    async def put_white_addresses(self, request: Request[Any]) -> Response:
        """Change a file's global white list."""
        header: UpdateGlobalWhiteAddrsConfigRequestHeader = request.header
        addresses = _split(header.global_white_addrs) or []
        try:
            await self._change(
                self._enabled().put_white_addresses, addresses, header.acl_file_full_path, self._clock.wall_ms()
            )
        except ConfigError as error:
            raise RequestError(WHITE_ADDRESSES_FAILED, str(error)) from None
        self._changed()
        return Response(ResponseCode.SUCCESS)

    def versions(self, request: Request[Any]) -> Response:
        """Return the dataVersion of each file, with that of ``plain_acl.yml`` also in its own field."""
        try:
            files = self._enabled()
            found = {
                path: DataVersion(timestamp=version.timestamp_ms, counter=version.counter)
                for path, version in files.versions().items()
            }
        except ConfigError as error:
            raise RequestError(ResponseCode.SYSTEM_ERROR, str(error)) from None
        default = found.get(str(files.default), DataVersion(timestamp=0, counter=0))
        header = GetBrokerAclConfigResponseHeader(
            version=dumps(default).decode(), all_acl_file_version=dumps(found).decode(),
            broker_name=self._config.broker.broker_name, broker_addr=self._config.broker.address,
            cluster_name=self._config.broker.broker_cluster_name,
        )  # fmt: skip
        return Response(ResponseCode.SUCCESS, None, to_ext_fields(header))

    def accounts(self, request: Request[Any]) -> Response:
        """Return all accounts without secret keys, each once, and the global white lists."""
        try:
            files = self._enabled().written()
        except ConfigError as error:
            raise RequestError(ResponseCode.SYSTEM_ERROR, str(error)) from None
        accounts = {account.access_key: account for file in reversed(files) for account in file.accounts or []}
        body = {
            "globalWhiteAddrs": [address for file in files for address in file.global_white_remote_addresses or []],
            "plainAccessConfigs": [
                {
                    "accessKey": account.access_key, "whiteRemoteAddress": account.white_remote_address,
                    "admin": account.is_admin, "defaultTopicPerm": account.default_topic_perm,
                    "defaultGroupPerm": account.default_group_perm,
                    "topicPerms": account.topic_perms or [], "groupPerms": account.group_perms or [],
                }
                for account in accounts.values()
            ],
        }  # fmt: skip
        return Response(ResponseCode.SUCCESS, body=dumps(body))

    def _enabled(self) -> PlainFiles:
        if self._files is None:
            raise ConfigError("The broker does not enable acl.")
        return self._files


def _split(text: str | None) -> list[str] | None:
    """Split a text at commas; None if the field is missing."""
    return None if text is None else [part.strip() for part in text.split(",") if part.strip()]
