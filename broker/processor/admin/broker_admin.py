"""Administration of the broker itself: configuration, statistics, role.

Source: RocketMQ 5.3.3, `AdminBrokerProcessor.getBrokerConfig`, `prepareRuntimeInfo` and others.
"""

import logging
from collections.abc import Mapping

from broker.config.live_config import LiveConfig
from broker.metrics.statistics import RateWindow, Span
from broker.topic.topics import TopicTable
from sprocket.common.clock import Clock
from sprocket.common.config.configuration_file import ConfigurationNotKept
from sprocket.common.errors import ConfigError
from sprocket.common.figures import Figures
from sprocket.common.logs.peer_lines import peer_lines
from sprocket.remoting.bodies.stats import BrokerStatsData, BrokerStatsItem, KVTable
from sprocket.remoting.bodies.topic import DataVersion
from sprocket.remoting.codec.fastjson import dumps
from sprocket.remoting.codes import RequestCode, ResponseCode
from sprocket.remoting.command import Request, Response
from sprocket.remoting.headers.admin import GetBrokerConfigResponseHeader, ViewBrokerStatsDataRequestHeader
from sprocket.remoting.refusals import Refusal
from sprocket.remoting.routes import Action, NoHeader, Resource, Route

logger = logging.getLogger(__name__)

# Source of the names: `Stats`.
_TOPIC_PUT_NUMS = "TOPIC_PUT_NUMS"
_GROUP_GET_NUMS = "GROUP_GET_NUMS"


class AdministrationProcessor:
    """Handler for configuration and statistics of the broker."""

    def __init__(
        self,
        config: LiveConfig,
        topics: TopicTable,
        put_rates: RateWindow,
        consume_rates: RateWindow,
        more_rates: Mapping[str, RateWindow],
        clock: Clock,
        figures: Figures,
    ) -> None:
        self._config = config
        self._topics = topics
        self._rates = {_TOPIC_PUT_NUMS: put_rates, _GROUP_GET_NUMS: consume_rates, **more_rates}
        self._clock = clock
        self._figures = figures
        self._config_version = DataVersion(timestamp=clock.wall_ms())

    def routes(self) -> list[Route]:
        code, cluster = RequestCode, Resource.CLUSTER
        return [
            Route(code.GET_BROKER_CONFIG, NoHeader, self.get_config, cluster, Action.GET),
            Route(code.UPDATE_BROKER_CONFIG, NoHeader, self.update_config, cluster, Action.UPDATE),
            Route(code.GET_BROKER_RUNTIME_INFO, NoHeader, self.runtime_info, cluster, Action.GET),
            Route(
                code.VIEW_BROKER_STATS_DATA, ViewBrokerStatsDataRequestHeader, self.stats_data, cluster, Action.GET
            ),
        ]  # fmt: skip

    def get_config(self, request: Request[NoHeader]) -> Response:
        """Return every key and value, as properties."""
        header = GetBrokerConfigResponseHeader(version=dumps(self._config_version).decode())
        return Response(header=header, body=self._config.to_properties().encode("iso-8859-1", "replace"))

    def update_config(self, request: Request[NoHeader]) -> Response:
        """Change mutable keys, all or none."""
        peer = request.channel.peer
        try:
            changed = self._config.update(request.body)
        except (ConfigError, ConfigurationNotKept) as error:
            peer_lines.warning(logger, peer, "event=config_update_refused peer=%s:%s reason=%r", *peer, str(error))
            code = ResponseCode.NO_PERMISSION if isinstance(error, ConfigError) else ResponseCode.SYSTEM_ERROR
            return Refusal(code, str(error))
        if changed:
            self._config_version.next(self._clock.wall_ms())
            peer_lines.info(
                logger, peer, "event=config_updated peer=%s:%s changed=%s note=%r", *peer, changed,
                self._config.note or "",
            )  # fmt: skip
        if "brokerPermission" in changed:
            # The permission of every registered topic depends on this key.
            self._topics.data_version.next(self._clock.wall_ms())
            self._topics.announce([])
        return Response(remark=self._config.note)

    def runtime_info(self, request: Request[NoHeader]) -> Response:
        """Return the figures of all parts, see docs/figures.md."""
        return Response(body=dumps(KVTable(self._figures.read())))

    def stats_data(self, request: Request[ViewBrokerStatsDataRequestHeader]) -> Response:
        """Return recent puts of a topic (TOPIC_PUT_NUMS) or gets of a group (GROUP_GET_NUMS, key ``topic@group``).

        BROKER_PUT_NUMS and BROKER_GET_NUMS are of the whole broker; their key is the cluster's name.  For other names
        the remark is RocketMQ's for unknown statistics.
        """
        header = request.header
        rates = self._rates.get(header.stats_name)
        if rates is None or header.stats_key not in rates:
            remark = f"The stats <{header.stats_name}> <{header.stats_key}> not exist"
            return Refusal(ResponseCode.SYSTEM_ERROR, remark)
        minute, hour, day = (_stats_item(*rates.growth(header.stats_key, span)) for span in Span)
        return Response(body=dumps(BrokerStatsData(minute, hour, day)))


def _stats_item(total: int, seconds: float) -> BrokerStatsItem:
    return BrokerStatsItem(total, total / seconds if seconds > 0 else 0.0)  # calls are not counted
