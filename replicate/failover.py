"""Steps of a failover, on real clusters: what they look at, what they write, and what they report.

The rules are in `protocol/steps.py`.  The state goes to every cluster of the pair that answers.
"""

import logging
from collections.abc import Callable
from functools import partial
from itertools import permutations, product
from typing import Any, Final

import msgspec

from replicate.cluster import Cluster
from replicate.config import Config, LinkConfig
from replicate.group_offsets import GroupOffsets
from replicate.protocol.steps import (
    Facts,
    Pair,
    Phase,
    StepRefused,
    begin_return,
    fail_over,
    finish_return,
)
from replicate.records import Record, pair_in, pair_key
from replicate.report import LinkReport, as_json, link_report
from sprocket.client.connection.wakeup import pause
from sprocket.common.clock import Clock
from sprocket.common.errors import ClientError, SprocketError

logger = logging.getLogger(__name__)

# Time between two looks at a source that should get no messages.
_SETTLE_S: Final = 2.0


class StepReport(msgspec.Struct):
    """Outcome of a step: the state after it, or why it was refused; and what each side lacks of the other."""

    before: Pair
    after: Pair | None
    refused: str
    links: list[LinkReport]

    def as_json(self) -> dict[str, Any]:
        """Return the report as JSON."""
        return {
            "before": msgspec.to_builtins(self.before),
            "after": msgspec.to_builtins(self.after),
            "refused": self.refused,
            "links": [as_json(link) for link in self.links],
        }


class FailoverSteps:
    """Steps of a pair of the clusters of `config`, which are started: its home, and the cluster that takes over.

    Without `pair` it is that of a configuration of two clusters.
    """

    def __init__(
        self, config: Config, clusters: dict[str, Cluster], clock: Clock, settle_s: float = _SETTLE_S,
        pair: tuple[str, str] | None = None,
    ) -> None:  # fmt: skip
        """Raises StepRefused if there is no such pair."""
        names = pair or _only_pair(config)
        if pair and any(config.link(*each) is None for each in permutations(names, 2)):
            raise StepRefused(
                f"{names[0]} and {names[1]} have no link each way in the configuration; in a ring move by hand, see "
                "docs/geo-replication.md"
            )
        self._config = config
        self._home = names[0]
        self._is_named = pair is not None
        self._clusters = {name: clusters[name] for name in names}
        self._others = [cluster for name, cluster in clusters.items() if name not in names]
        self._clock = clock
        self._settle_s = settle_s
        self._answering: list[Cluster] = []

    async def open(self) -> Pair:
        """Read the state of the pair from the clusters that answer.  Raises ClientError if none of it does."""
        self._answering = [each for each in self._clusters.values() if await _opened(each)]
        if not self._answering:
            raise ClientError("neither cluster answers; look at the name servers of the configuration")
        others = [each for each in self._others if await _opened(each, create=False)]
        tables = [one.records for one in (*self._answering, *others)]
        for name, third in product(self._clusters, self._others):
            moved = pair_in(name, third.name, *tables)
            if moved is not None and moved.phase is not Phase.STEADY:
                raise StepRefused(
                    f"{moved.active} took over from {moved.home}; bring that one back first: `failback --pair "
                    f"{moved.home} {moved.active}`"
                )
        one, other = self._clusters
        found = pair_in(one, other, *tables)
        home = found.home if found is not None else self._config.home
        if self._is_named and home in self._clusters and home != self._home:
            raise StepRefused(f"{home} is the home of this pair; use --pair {home} {self._home}")
        return found or Pair(self._home, self._home)

    async def fail_over(self, to: str, *, source_is_lost: bool, dry_run: bool = False) -> StepReport:
        """Make `to` active.  Raises ClientError."""
        pair = await self.open()
        if to not in self._clusters:
            raise StepRefused(f"{to!r} is no cluster of the pair; use one of {sorted(self._clusters)}")
        forward, back = await self._reports(pair.active, self._other(pair.active))
        facts = Facts(_answers(forward), _lag(forward), _lag(back), forward is not None and forward.moves)
        step = partial(fail_over, pair, to, facts, source_is_lost=source_is_lost)
        return await self._take(pair, to, step, [forward, back], dry_run)

    async def begin_return(self, *, dry_run: bool = False) -> StepReport:
        """Let the old side catch up.  Raises ClientError."""
        return await self._return(begin_return, dry_run)

    async def finish_return(self, *, dry_run: bool = False) -> StepReport:
        """Make the old side active again.  Raises ClientError."""
        return await self._return(finish_return, dry_run)

    async def _return(self, step: Callable[..., Pair], dry_run: bool) -> StepReport:
        pair = await self.open()
        forward, back = await self._reports(pair.active, pair.home)
        facts = Facts(_answers(back), _lag(forward), _lag(back), forward is not None and forward.moves)
        return await self._take(pair, pair.active, partial(step, pair, facts), [forward, back], dry_run)

    async def next_step(self, *, source_is_lost: bool) -> StepReport:
        """Rehearse the step that comes next; nothing is written.  Raises ClientError."""
        pair = await self.open()
        if pair.phase is Phase.STEADY:
            return await self.fail_over(self._other(pair.active), source_is_lost=source_is_lost, dry_run=True)
        if pair.phase is Phase.FAILED_OVER:
            return await self.begin_return(dry_run=True)
        return await self.finish_return(dry_run=True)

    def _other(self, name: str) -> str:
        return next(each for each in self._clusters if each != name)

    async def _reports(self, active: str, other: str) -> tuple[LinkReport | None, LinkReport | None]:
        """Return the reports of the links from the active side and back; None if a target does not answer."""
        return await self._report(active, other), await self._report(other, active)

    async def _report(self, source: str, target: str) -> LinkReport | None:
        link = self._config.link(source, target)
        if link is None or self._clusters[target] not in self._answering:
            return None
        return await link_report(
            link, self._config, self._clusters, self._clock, with_groups=True, settle_s=self._settle_s
        )

    async def _take(
        self, pair: Pair, needed: str, step: Callable[..., Pair], reports: list[LinkReport | None], dry_run: bool
    ) -> StepReport:
        """Take a step for which the cluster `needed` must answer."""
        links = [report for report in reports if report is not None]
        try:
            if self._clusters[needed] not in self._answering:
                raise StepRefused(f"{needed} does not answer; start its brokers, then try again")
            after = step(at_ms=self._clock.wall_ms())
        except StepRefused as refused:
            return StepReport(pair, None, str(refused), links)
        if not dry_run:
            await self._write_offsets(pair, after)
            for cluster in self._answering:
                await self._put(cluster, after)
            logger.info("event=pair_changed active=%s phase=%s epoch=%d", after.active, after.phase, after.epoch)
        return StepReport(pair, after, "", links)

    async def _write_offsets(self, before: Pair, after: Pair) -> None:
        """Write the last offsets of the side that was active, if it answers."""
        link: LinkConfig | None = self._config.link(before.active, after.active)
        source = self._clusters[before.active]
        if link is not None and source in self._answering:
            try:
                await GroupOffsets(link, self._config, source, self._clusters[after.active], {}).write()
            except SprocketError as error:
                logger.warning("event=offsets_not_written reason=%r", str(error))

    async def _put(self, cluster: Cluster, pair: Pair) -> None:
        try:
            await cluster.put(pair_key(*self._clusters), Record(pair=pair))
        except (SprocketError, TimeoutError) as error:
            logger.warning("event=pair_not_written cluster=%s reason=%r", cluster.name, str(error))
            if cluster.name == pair.active:
                raise ClientError(f"the new state is not in {cluster.name}: {error}; take the step again") from None


def _only_pair(config: Config) -> tuple[str, str]:
    if len(config.clusters) != 2:
        raise StepRefused("name two of the clusters with --pair: the one where applications work, and the other one")
    if not config.home:
        raise StepRefused("a failover needs `home` in the configuration: the cluster where applications work in peace")
    (other,) = config.clusters.keys() - {config.home}
    return config.home, other


async def _opened(cluster: Cluster, *, create: bool = True) -> bool:
    """Return whether a cluster answers; its table is open then.  Without `create` it must have one."""
    try:
        await cluster.masters()
    except SprocketError as error:
        logger.info("event=cluster_silent cluster=%s reason=%r", cluster.name, str(error))
        return False
    for _ in range(10):
        try:
            if (is_open := await cluster.open_table(create=create)) or not create:
                return is_open
        except TimeoutError:
            return False
        except SprocketError as error:
            logger.info("event=cluster_not_opened cluster=%s reason=%r", cluster.name, str(error))
        await pause(0.3)
    return False


def _answers(report: LinkReport | None) -> bool:
    return report is not None and report.source_answers


def _lag(report: LinkReport | None) -> int | None:
    return report.lag if report is not None and report.source_answers else None
