"""Lets in what the accounts allow, before anything of a request is looked at.

Source: RocketMQ 5.3.2, `BrokerController.initialAcl`: aclEnable.  Unlike there every request is checked, also one whose
code nobody serves.
"""

import logging
from pathlib import Path
from typing import Final

from acl.access_request import AccessRequest
from acl.plain_files import PlainFiles
from acl.plain_policy import PlainPolicy
from acl.remote_addresses import Parts, parts_of
from broker.config import BrokerConfig
from broker.periodic import Periodic
from broker.service import Service
from remoting import codec_binary, codec_json
from remoting.channel import RemotingChannel
from remoting.command import FLAG_RESPONSE, Request, Response
from remoting.credentials import Credentials
from remoting.framing import JSON, Frame
from remoting.routes import LONG_CODES, Action, RouteTable
from sprocket.common.errors import ConfigError, RequestError

logger = logging.getLogger(__name__)

# `AclFileWatchService`
_WATCH_S: Final = 5.0
# Addresses that are remembered with their parts.
_MOST_PEERS: Final = 4096
# Refusals of one second that are logged.
_MOST_LOGGED: Final = 10


class AccessControl(Service):
    """The gate of one broker's port; open without aclEnable.  Lives in the event loop's thread.

    Raises ConfigError, when made and by `load`: a broker that is to be guarded does not start without its accounts.
    """

    def __init__(self, config: BrokerConfig) -> None:
        self._files = _files(config)
        # With which the broker asks other brokers.
        self.credentials: Credentials | None = None if self._files is None else self._files.tool_credentials()
        self._policy = PlainPolicy({})
        self._actions: dict[int, Action] = {}
        self._peers: dict[str, Parts | None] = {}
        self._logged = 0  # refusals of this second

    def guard(self, table: RouteTable) -> RouteTable:
        """Stand in front of `table`, which is returned."""
        if self._files is not None:
            self._actions = {int(route.code): route.action for route in table.routes}
            table.guard = self.admits
        return table

    def load(self) -> None:
        """Read the accounts."""
        if self._files is not None:
            self._files.load()
            self._policy = self._files.policy

    def periodic(self) -> list[Periodic]:
        """See files change."""
        if self._files is None:
            return []
        return [Periodic("acl_files", _WATCH_S, self._reload), Periodic("acl_log", 1.0, self._log_on)]

    @property
    def plain_files(self) -> PlainFiles | None:
        """The accounts of aclEnable."""
        return self._files

    def accounts_changed(self) -> None:
        """Go by what the files say now."""
        if self._files is not None:
            self._policy = self._files.policy

    def _reload(self) -> None:
        if self._files is not None:
            self._files.reload()
        self.accounts_changed()

    def admits(self, frame: Frame, channel: RemotingChannel) -> bool:
        """Whether `frame` may be served; if not, it is answered.  Raises ProtocolError for one that is none."""
        found = self._request(frame, self._parts(channel.peer[0]))
        if found is None:
            return True
        asked, request = found
        try:
            self._policy.check(asked)
        except RequestError as error:
            self._refuse(channel, request, error)
            return False
        return True

    def _request(self, frame: Frame, peer: Parts | None) -> tuple[AccessRequest, Request[None]] | None:
        """What is asked for, and whom to answer; None for an answer of the peer's."""
        serialization, header, body = frame
        if serialization == JSON:
            envelope = codec_json.decode_envelope(header)
            code, flag, opaque, version = envelope.code, envelope.flag, envelope.opaque, envelope.version
            fields = codec_json.decode_ext_fields(envelope.ext_fields)
        else:
            binary = codec_binary.decode_header(header)
            code, flag, opaque, version = binary.code, binary.flag, binary.opaque, binary.version
            fields = binary.ext_fields
        if flag & FLAG_RESPONSE:
            return None
        if serialization != JSON:
            code = LONG_CODES.get(code, code)
        asked = AccessRequest(code, version, peer, fields, body, self._actions.get(code, Action.NONE))
        request: Request[None] = Request(code=code, opaque=opaque, flag=flag, version=version)
        request.serialization = serialization
        return asked, request

    def _refuse(self, channel: RemotingChannel, request: Request[None], error: RequestError) -> None:
        self._logged += 1
        if self._logged <= _MOST_LOGGED:
            logger.warning("event=access_denied peer=%s code=%d reason=%r", channel.peer[0], request.code, error.remark)
        channel.reply(request, Response(error.code, error.remark))

    def _log_on(self) -> None:
        if self._logged > _MOST_LOGGED:
            logger.warning("event=access_denied more=%d", self._logged - _MOST_LOGGED)
        self._logged = 0

    def _parts(self, address: str) -> Parts | None:
        if address not in self._peers:
            if len(self._peers) >= _MOST_PEERS:
                self._peers.clear()
            self._peers[address] = parts_of(address)
        return self._peers[address]


def _files(config: BrokerConfig) -> PlainFiles | None:
    if not config.acl_enable:
        return None
    if not config.rocketmq_home:
        raise ConfigError("aclEnable = true: set rocketmqHome, whose conf/plain_acl.yml has the accounts")
    return PlainFiles(Path(config.rocketmq_home))
