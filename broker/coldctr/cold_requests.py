"""Handlers for cold reads: thresholds of groups, and read-ahead of the CommitLog.

As in RocketMQ, each broker has its own thresholds of groups, and they are lost when it stops.
Source: RocketMQ 5.3.3, `AdminBrokerProcessor.updateColdDataFlowCtrGroupConfig`, `removeColdDataFlowCtrGroupConfig`,
`getColdDataFlowCtrInfo`, `setCommitLogReadaheadMode`.
"""

import logging
from typing import Final

from broker.coldctr.cold_thresholds import ADAPTIVE, ColdThresholds
from broker.config.live_config import LiveConfig
from broker.names import illegal_group
from sprocket.common.config.configuration_file import ConfigurationNotKept
from sprocket.common.config.properties import parse
from sprocket.common.errors import ConfigError, RequestError
from sprocket.common.logs.peer_lines import peer_lines
from sprocket.remoting.bodies.cold_flow import ColdFlowInfo, ColdReadsInfo
from sprocket.remoting.codec.fastjson import dumps
from sprocket.remoting.codec.java_text import java_text
from sprocket.remoting.codes import RequestCode, ResponseCode
from sprocket.remoting.command import Request, Response
from sprocket.remoting.headers.cold_flow import SetCommitLogReadModeRequestHeader
from sprocket.remoting.refusals import Refusal
from sprocket.remoting.routes import Action, NoHeader, Resource, Route

logger = logging.getLogger(__name__)

_MADV_NORMAL, _MADV_RANDOM = 0, 1
_MAX_GROUPS: Final = 10_000
_MAX_BODY_BYTES: Final = 64 * 1024
_MAX_THRESHOLD: Final = 2**63 - 1


class ColdFlowProcessor:
    """Handler of the four requests."""

    def __init__(self, config: LiveConfig, thresholds: ColdThresholds) -> None:
        self._config = config
        self._thresholds = thresholds

    def routes(self) -> list[Route]:
        """The routes of this processor."""
        code, cluster, update = RequestCode, Resource.CLUSTER, Action.UPDATE
        header = SetCommitLogReadModeRequestHeader
        return [
            Route(code.UPDATE_COLD_DATA_FLOW_CTR_CONFIG, NoHeader, self.set_thresholds, cluster, update),
            Route(code.REMOVE_COLD_DATA_FLOW_CTR_CONFIG, NoHeader, self.remove_threshold, cluster, update),
            Route(code.GET_COLD_DATA_FLOW_CTR_INFO, NoHeader, self.info, cluster, Action.GET),
            Route(code.SET_COMMITLOG_READ_MODE, header, self.set_read_mode, cluster, update),
        ]

    def set_thresholds(self, request: Request[NoHeader]) -> Response:
        """Set thresholds: the body has lines of ``group=bytes``.  All or none."""
        found = {}
        for entry in parse(_text(request)):
            group, value = entry.key, entry.value.strip()
            reason = illegal_group(group)
            if reason is None and not (value.isascii() and value.isdigit() and int(value) <= _MAX_THRESHOLD):
                reason = f"threshold {value!r} of group {group} is not a number of bytes"
            if reason is not None:
                raise RequestError(ResponseCode.INVALID_PARAMETER, f"no threshold was set: {reason}")
            found[group] = int(value)
        held = self._thresholds.set_by_operator
        if len(held.keys() | found.keys()) > _MAX_GROUPS:
            remark = f"no threshold was set: max {_MAX_GROUPS} groups can have one; remove others first"
            raise RequestError(ResponseCode.INVALID_PARAMETER, remark)
        held.update(found)
        peer_lines.info(
            logger, request.channel.peer, "event=cold_thresholds_set peer=%s:%s thresholds=%s", *request.channel.peer,
            found,
        )  # fmt: skip
        return Response()

    def remove_threshold(self, request: Request[NoHeader]) -> Response:
        """Remove the threshold of the group in the body; succeeds also without a threshold."""
        group = _text(request).strip()
        held = self._thresholds.set_by_operator.pop(group.removesuffix(ADAPTIVE), None)
        self._thresholds.adapted.pop(group.removesuffix(ADAPTIVE), None)
        peer_lines.info(
            logger, request.channel.peer, "event=cold_threshold_removed peer=%s:%s group=%s was=%s",
            *request.channel.peer, group, held,
        )  # fmt: skip
        return Response()

    def info(self, _: Request[NoHeader]) -> Response:
        """Return the cold bytes that groups have read in this round, and their thresholds."""
        thresholds, broker = self._thresholds, self._config.broker
        reads = {
            group: ColdReadsInfo(read.cold_bytes, read.created_ms, read.last_read_ms)
            for group, read in thresholds.reads.items()
        }
        adapted = {group + ADAPTIVE: value for group, value in thresholds.adapted.items()}
        info = ColdFlowInfo(
            broker.cg_cold_read_threshold,
            thresholds.set_by_operator | adapted,
            thresholds.total_bytes,
            broker.global_cold_read_threshold,
            reads,
        )
        return Response(body=dumps(info))

    def set_read_mode(self, request: Request[SetCommitLogReadModeRequestHeader]) -> Response:
        """Turn read-ahead of the CommitLog on (0) or off (1), as an update of dataReadAheadEnable does."""
        mode = request.header.read_ahead_mode
        if mode is None:
            return Refusal(ResponseCode.SYSTEM_ERROR, "set commitlog readahead mode param error")
        if mode not in (_MADV_NORMAL, _MADV_RANDOM):
            return Refusal(ResponseCode.INVALID_PARAMETER, "set commitlog readahead mode param value error")
        is_ahead = mode == _MADV_NORMAL
        try:
            self._config.update(f"dataReadAheadEnable={str(is_ahead).lower()}\n".encode())
        except (ConfigError, ConfigurationNotKept) as error:
            return Refusal(ResponseCode.SYSTEM_ERROR, f"set commitlog readahead mode failed: {error}")
        peer_lines.info(
            logger, request.channel.peer, "event=read_ahead_set peer=%s:%s enabled=%s", *request.channel.peer, is_ahead
        )
        return Response(remark=f"set commitlog readahead mode success, mode: {mode}")


def _text(request: Request[NoHeader]) -> str:
    """Return the body as text.  Raises RequestError if it is too long."""
    if len(request.body) > _MAX_BODY_BYTES:
        remark = f"the body has {len(request.body)} bytes; allowed are {_MAX_BODY_BYTES}"
        raise RequestError(ResponseCode.INVALID_PARAMETER, remark)
    return java_text(request.body)
