"""The timer wheel as a service of the broker: its turns, its flushes, and its answers to operators and slaves.

Source: RocketMQ 5.3.3, `TimerMessageStore`, `AdminBrokerProcessor.getTimerCheckPoint`, `getTimerMetrics`,
`prepareRuntimeInfo`, `BrokerController.initializeMessageStore`.
"""

import asyncio
import logging
from dataclasses import replace
from datetime import datetime
from typing import Final

from broker.core import BrokerCore
from broker.periodic import Periodic
from broker.service import Service
from broker.timer.recall import RecallProcessor
from broker.timer.timer_intake import TimerIntake
from broker.timer.timer_metrics import TimerMetrics
from broker.timer.wheel_metrics import wheel_metrics
from broker.turns import NextTurn, loop_later, loop_time
from sprocket.common.errors import DiskFailed, StoreError
from sprocket.common.figures import Declared, Figure
from sprocket.metrics.declared import Metric
from sprocket.remoting.codes import RequestCode, ResponseCode
from sprocket.remoting.command import Request, Response
from sprocket.remoting.message.topic_names import SCHEDULE_TOPIC, TIMER_TOPIC, TRANS_HALF_TOPIC
from sprocket.remoting.refusals import Refusal
from sprocket.remoting.routes import Action, NoHeader, Resource, Route
from store.config.store_config import delete_hours
from store.flush.confirmation import Arrival
from store.timer.timer_enqueue import ENTRY_MESSAGES
from store.timer.timer_message_store import TimerMessageStore
from store.timer.timer_progress import TimerCheckpoint

logger = logging.getLogger(__name__)

# Topics to which the timer delivers nothing.
BARRED_TOPICS: Final = (SCHEDULE_TOPIC, TRANS_HALF_TOPIC)
_RETRY_S: Final = 1.0
_HOUR_MS: Final = 3_600_000
# Messages enter the wheel after at most this share of a slot, as in RocketMQ, so that one turn enters those of many
# reads: each pop and each acknowledgement leaves one.
_ENTRY_SHARE: Final = 0.1
# Longest sleep, after which a step of the wall clock or a change of the configuration is noticed.
_MAX_SLEEP_S: Final = 1.0
_METRICS_SAVE_S: Final = 10.0
_LOG_EXPIRY_S: Final = 30.0
_METRICS_CLEAN_S: Final = 180.0
# Once within the hours of timerCheckMetricsWhen.
_METRICS_CHECK_S: Final = 45 * 60.0


class _Rate:
    """Events per second between the last two samples."""

    def __init__(self) -> None:
        self.per_second = 0.0
        self._count = 0
        self._at_s = 0.0

    def sample(self, count: int, now_s: float) -> None:
        if now_s > self._at_s:
            self.per_second = (count - self._count) / (now_s - self._at_s)
            self._count, self._at_s = count, now_s


class TimerService(Service):
    """Timer wheel of one broker.  Lives in the event loop's thread."""

    def __init__(self, core: BrokerCore, timer: TimerMessageStore, metrics: TimerMetrics, intake: TimerIntake) -> None:
        self._core = core
        self._recall = RecallProcessor(core, intake)
        self._delays = intake.delays
        self.metrics = metrics
        self.timer = timer
        timer.on_delivered.append(self._delivered)
        self._is_enabled = core.config.store.timer_wheel_enable
        self._next_turn = NextTurn(self._turn, loop_time, loop_later, _MAX_SLEEP_S)
        self._is_running = False
        self._is_entry_due = False  # whether a turn comes soon for messages that arrived
        self._enqueue_rate, self._dequeue_rate = _Rate(), _Rate()
        self._logged_at = 0.0
        self._logged = (0, 0, 0)  # waiting, enqueue_behind, queue_offset
        self._is_flushing = False

    def routes(self) -> list[Route]:
        code, cluster = RequestCode, Resource.CLUSTER
        return [
            *self._recall.routes(),
            Route(code.GET_TIMER_CHECK_POINT, NoHeader, self.get_checkpoint, cluster, Action.GET),
            Route(code.GET_TIMER_METRICS, NoHeader, self.get_metrics, cluster, Action.GET),
        ]

    def periodic(self) -> list[Periodic]:
        if not self._is_enabled:
            return []
        return [
            Periodic("timer_flush", lambda: self._core.config.store.timer_flush_interval_ms / 1000, self._flush),
            Periodic("timer_metrics", _METRICS_SAVE_S, self._save_metrics),
            Periodic("timer_log_expiry", _LOG_EXPIRY_S, self.timer.remove_expired),
            Periodic("timer_metrics_clean", _METRICS_CLEAN_S, self._clean_metrics),
            Periodic("timer_metrics_check", _METRICS_CHECK_S, self._check_metrics),
        ]

    # Life

    def load(self) -> None:
        if not self._is_enabled:
            return
        config = self._core.config.store
        if config.file_reserved_time * _HOUR_MS <= config.roll_window_ms:
            logger.warning(
                "event=timer_roll_window_too_long timerRollWindowSlot=%d fileReservedTime=%d note=%r",
                config.timer_roll_window_slot, config.file_reserved_time,
                "messages expire before the wheel writes them again",
            )  # fmt: skip
        self.metrics.load()
        self.timer.load()
        if self._core.role.serves_group:
            self.metrics.revise(self.timer.count_by_topic_hash(), 1 << 62)

    def activate(self) -> None:
        if self._is_enabled:
            if self.timer.is_following:
                self.timer.take_over()
                # Waiting messages enter the wheel again, and are counted then.
                self.metrics.revise(self.timer.count_by_topic_hash(), 1 << 62)
            self._is_running = True
            self._core.store.on_arrival_of.setdefault(TIMER_TOPIC, []).append(self._arrived)
            self._next_turn.wake_in(0.0)

    def deactivate(self) -> None:
        if self._is_running:
            self._core.store.on_arrival_of[TIMER_TOPIC].remove(self._arrived)
        self._is_running = False
        self._next_turn.cancel()
        self._is_entry_due = False
        if self._is_enabled:
            self.timer.pause()
            if self._core.role.is_slave and not self._is_flushing:
                try:
                    self._flush_now()  # the master fetches the checkpoint
                except DiskFailed as error:
                    self._core.fail(error)

    def save(self) -> None:
        if not self._is_enabled:
            return
        self._flush_now()
        self.metrics.persist_changes()
        self.timer.close()

    def _flush_now(self) -> None:
        flush = self.timer.prepare_flush()
        if flush is not None:
            flush.write()
            self.timer.flushed(flush)

    def follow(self, master: TimerCheckpoint) -> bool:
        """Follow a master's checkpoint; return False while files are written, because the next one comes soon."""
        if self._is_running or self._is_flushing:
            return False
        self.timer.follow(master)
        return True

    # Turns

    def _arrived(self, arrivals: list[Arrival]) -> None:
        if not self._is_running:
            return
        # The topic has one queue, so the last arrival tells its end.
        if arrivals[-1][2] - self.timer.queue_offset >= ENTRY_MESSAGES:
            self._next_turn.wake_in(0.0)
        elif not self._is_entry_due:
            self._is_entry_due = True
            self._next_turn.wake_in(self._core.config.store.slot_ms / 1000 * _ENTRY_SHARE)

    def _delivered(self) -> None:
        self._next_turn.wake_in(0.0)

    def _turn(self) -> None:
        self._is_entry_due = False
        if not self._is_running:
            return
        try:
            wait_s = self.timer.turn()
        except DiskFailed as error:
            self._core.fail(error)
            return
        except StoreError as error:
            logger.warning("event=timer_postponed reason=%r", str(error))
            wait_s = _RETRY_S
        except Exception:
            # A bug that one message triggers must neither hold back all others for ever nor end the broker.
            logger.exception("event=timer_turn_failed")
            wait_s = _RETRY_S
        if wait_s is not None:
            self._next_turn.wake_in(wait_s)

    # Files

    async def _flush(self) -> None:
        timer, now_s = self.timer, self._core.clock.monotonic()
        self._enqueue_rate.sample(timer.enqueued, now_s)
        self._dequeue_rate.sample(timer.dequeued, now_s)
        self._log_progress(now_s)
        flush = timer.prepare_flush()
        if flush is None:
            return
        self._is_flushing = True
        try:
            await asyncio.to_thread(flush.write)
        except DiskFailed as error:
            self._core.fail(error)
            return
        finally:
            self._is_flushing = False
        timer.flushed(flush)

    def _log_progress(self, now_s: float) -> None:
        timer = self.timer
        interval_s = self._core.config.store.timer_progress_log_interval_ms / 1000
        if now_s - self._logged_at < interval_s:
            return
        # A message that is due for less than the interval is about to be delivered.
        is_late = timer.dequeue_behind_ms >= interval_s * 1000
        progress = (timer.waiting, timer.enqueue_behind, timer.queue_offset)
        if progress != self._logged or is_late:
            self._logged_at, self._logged = now_s, progress
            logger.info(
                "event=timer_progress waiting=%d enqueue_behind=%d dequeue_behind_ms=%d queue_offset=%d",
                timer.waiting, timer.enqueue_behind, timer.dequeue_behind_ms, timer.queue_offset,
            )  # fmt: skip

    async def _save_metrics(self) -> None:
        await self.metrics.save()

    def _clean_metrics(self) -> None:
        self.metrics.clean(self._core.topics.__contains__)

    def _check_metrics(self) -> None:
        config = self._core.config.store
        hour = datetime.fromtimestamp(self._core.clock.wall_ms() / 1000).astimezone().hour
        is_ours = self._core.role.serves_group and config.timer_enable_check_metrics
        if is_ours and hour in delete_hours(config.timer_check_metrics_when):
            self.metrics.revise(self.timer.count_by_topic_hash(), config.timer_metric_small_threshold)

    # Answers

    def figures(self) -> list[Declared]:
        """Return the figures, under RocketMQ's names; zeros while timerWheelEnable is false."""
        timer, is_on = self.timer, self._is_enabled
        enqueued, dequeued = self._enqueue_rate, self._dequeue_rate
        return [
            Figure(
                "timerReadBehind",
                "lag of the wheel's delivery, s",
                lambda: timer.dequeue_behind_ms // 1000 if is_on else 0,
            ),
            Figure(
                "timerOffsetBehind",
                "messages that have yet to enter the wheel",
                lambda: timer.enqueue_behind if is_on else 0,
            ),
            Figure("timerCongestNum", "messages that wait in the wheel", lambda: timer.waiting if is_on else 0),
            Figure("timerEnqueueTps", "messages per second that enter the wheel", lambda: f"{enqueued.per_second:.1f}"),
            Figure("timerDequeueTps", "messages per second that leave the wheel", lambda: f"{dequeued.per_second:.1f}"),
        ]

    def exported_metrics(self) -> list[Metric]:
        """Return the metrics; RocketMQ has none either while timerWheelEnable is false."""
        return wheel_metrics(self._core, self.timer, self.metrics, self._delays) if self._is_enabled else []

    def get_checkpoint(self, request: Request[NoHeader]) -> Response:
        """GET_TIMER_CHECK_POINT: the fields of the checkpoint, as in its file."""
        if not self._is_enabled:
            return Refusal(ResponseCode.SYSTEM_ERROR, "The checkpoint is null")
        checkpoint = self.timer.checkpoint
        if not checkpoint.progress.read_ms and not self._core.role.is_slave:
            # The wheel was never used.  From 0, RocketMQ's slave would step through every second since 1970.
            now_ms = self._core.clock.wall_ms()
            slot_ms = now_ms // self._core.config.store.slot_ms * self._core.config.store.slot_ms
            checkpoint = replace(checkpoint, progress=replace(checkpoint.progress, read_ms=slot_ms))
        return Response(body=checkpoint.encode())

    def get_metrics(self, request: Request[NoHeader]) -> Response:
        """GET_TIMER_METRICS: waiting messages by topic."""
        if not self._is_enabled:
            return Refusal(ResponseCode.SYSTEM_ERROR, "The timer message store is null")
        return Response(body=self.metrics.encode())
