"""Construction of a broker's request handlers."""

import os
from dataclasses import dataclass

from broker.core import BrokerCore
from broker.message_id import UniqueKeys
from broker.monitoring.traffic import Traffic
from broker.out.other_brokers import OtherBrokers
from broker.out.registration import Registration
from broker.processor.admin.broker_admin import AdministrationProcessor
from broker.processor.admin.cleaning import CleaningProcessor
from broker.processor.admin.connections import ConnectionProcessor
from broker.processor.admin.consume_queues import QueueProcessor
from broker.processor.admin.consumption import ConsumptionProcessor
from broker.processor.admin.groups import GroupProcessor
from broker.processor.admin.resets import ResetProcessor
from broker.processor.admin.topics import TopicProcessor
from broker.processor.client_manage import ClientProcessor
from broker.processor.consumer_offsets import OffsetProcessor
from broker.processor.end_transaction import TransactionProcessor
from broker.processor.pop.pop_service import PopService
from broker.processor.pull import PullProcessor
from broker.processor.query import QueryProcessor
from broker.processor.reply import ReplyProcessor
from broker.processor.send import SendProcessor
from broker.processor.send_back import SendBackProcessor
from broker.processor.static_offsets import StaticOffsets
from broker.processor.static_pulls import StaticPulls
from broker.processor.static_resets import StaticResets
from broker.send.intake import MessageIntake
from broker.send.planner import SendPlanner
from broker.table_pages import TablePages
from broker.timer.schedule import ScheduleService
from broker.timer.timer_intake import TimerIntake
from broker.topic.logical_resets import LogicalResets
from broker.transaction.transactions import Transactions
from sprocket.common.figures import Figures
from sprocket.remoting.routes import Route
from store.record.record import TagsCodes


@dataclass(frozen=True)
class SendParts:
    """What turns a message that was sent to this broker into one that is stored."""

    planner: SendPlanner
    intake: MessageIntake


def send_parts(core: BrokerCore, timer_intake: TimerIntake) -> SendParts:
    """Build `SendParts`."""
    tags_codes = TagsCodes(core.config.store.message_delay_level)
    unique_keys = UniqueKeys(core.store.store_host[:-4], os.getpid(), core.random_below(1 << 31), core.clock)
    return SendParts(SendPlanner(core), MessageIntake(core, tags_codes, unique_keys, timer_intake))


def message_routes(
    core: BrokerCore,
    sending: SendParts,
    transactions: Transactions,
    pulls: PullProcessor,
    pop: PopService,
    brokers: OtherBrokers,
) -> list[Route]:
    """Return the routes for producers and consumers."""
    static, planner = core.mappings.by_name, sending.planner
    on_reset, logical_resets = (pop.reset, pulls.reset), LogicalResets(core.clock)
    static_offsets = StaticOffsets(OffsetProcessor(core), static, brokers, logical_resets)
    return [
        *SendProcessor(core, planner, sending.intake).routes(),
        *ReplyProcessor(core, planner).routes(),
        *SendBackProcessor(core).routes(),
        *TransactionProcessor(core, transactions).routes(),
        *StaticPulls(pulls, static, brokers, logical_resets).routes(),
        *static_offsets.routes(),
        *StaticResets(ResetProcessor(core, on_reset), static_offsets, static, brokers, logical_resets).routes(),
        *ClientProcessor(core).routes(),
    ]


def admin_routes(
    core: BrokerCore,
    schedule: ScheduleService,
    registration: Registration,
    traffic: Traffic,
    figures: Figures,
) -> list[Route]:
    """Return the routes for operators."""
    rates = traffic.pop_rates | traffic.broker_rates | traffic.more_rates
    return [
        *TopicProcessor(core, traffic.put_rates, registration.settle).routes(),
        *GroupProcessor(core, TablePages(core.config)).routes(),
        *ConsumptionProcessor(core, schedule.offsets, traffic.consume_rates).routes(),
        *ConnectionProcessor(core).routes(),
        *AdministrationProcessor(
            core.config, core.topics, traffic.put_rates, traffic.consume_rates, rates, core.clock, figures
        ).routes(),
        *QueryProcessor(core).routes(),
        *QueueProcessor(core).routes(),
        *CleaningProcessor(core).routes(),
    ]
