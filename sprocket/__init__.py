"""Sprocket: a message broker that speaks RocketMQ.

Import public names from this package; every other top-level package is an implementation detail.  A name is loaded
when it is first used.  So ``import sprocket`` is cheap, and a process that only sends never imports a server::

    from sprocket import Producer, Consumer, Message

`Lease`, `Leases` and `LeaseRefused` are for programs that read the segment files.  They load the package `store`, so
``from sprocket import *`` leaves them out.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sprocket.client.admin.admin_client import AdminClient, AdminError, ConfigRefused
    from sprocket.client.admin.auth_requests import AclChange
    from sprocket.client.admin.redrive import DeadLetterFilter, Redrive, RedriveFailed, Redriven
    from sprocket.client.compression import Compression
    from sprocket.client.connect import Connection, connect
    from sprocket.client.connection.client_instance import ClientSettings
    from sprocket.client.consume.consume_settings import ConsumeSettings, MessageModel
    from sprocket.client.consume.handling import BatchHandler, Handler
    from sprocket.client.consume.reconsume_later import ReconsumeLater
    from sprocket.client.consume.subscription import SqlFilter
    from sprocket.client.consumer import Consumer
    from sprocket.client.deduplication.claims import Claim, ClaimStore
    from sprocket.client.deduplication.deduplicator import Deduplicator, HandledKeys
    from sprocket.client.deduplication.key_window import KeyWindow
    from sprocket.client.deduplication.postgres_claims import PostgresClaims
    from sprocket.client.deduplication.redis_claims import RedisClaims
    from sprocket.client.deduplication.sqlite_claims import SqliteClaims
    from sprocket.client.errors import (
        AnswerUnreadable,
        BodyUnreadable,
        BrokerNotFound,
        BrokerRefused,
        ClientClosed,
        ClientError,
        ConnectFailed,
        ConnectionLost,
        IllegalArgument,
        IllegalMessage,
        LiteQuotaExceeded,
        NameServerUnreachable,
        PermissionDenied,
        RemotingTimeout,
        ReplyTimeout,
        SendFailed,
        SessionLost,
        TlsUnusable,
        TopicNotFound,
        TopicNotWritable,
    )
    from sprocket.client.lite.start import LiteStart, Tail
    from sprocket.client.lite_consumer import LiteConsumer
    from sprocket.client.message import Message, MessageQueue, ReceivedMessage
    from sprocket.client.orderly_consumer import OrderlyConsumer, OrderlySettings
    from sprocket.client.pop.pop_settings import PopSettings
    from sprocket.client.pop.pop_subject import PopHandler
    from sprocket.client.pop.popped_message import PoppedMessage
    from sprocket.client.producer import Producer
    from sprocket.client.pull.pull import PullSettings
    from sprocket.client.rebalance.allocation import (
        AllocateMessageQueueAveragely,
        AllocateMessageQueueAveragelyByCircle,
        AllocateMessageQueueByConfig,
        AllocateMessageQueueByMachineRoom,
        AllocateMessageQueueConsistentHash,
        AllocateMessageQueueStrategy,
    )
    from sprocket.client.rebalance.listener import ConsumerListener
    from sprocket.client.rebalance.start_offset import ConsumeFrom
    from sprocket.client.schedules import Schedules
    from sprocket.client.send.recall import RecallHandle
    from sprocket.client.send.reply import Reply, make_reply
    from sprocket.client.send.send_request import SendSettings
    from sprocket.client.send_result import SendResult, SendStatus
    from sprocket.client.session import Session
    from sprocket.client.simple_consumer import SimpleConsumer
    from sprocket.client.trace.recorder import TraceSettings
    from sprocket.client.transaction import TransactionProducer, TransactionResult, TransactionState
    from sprocket.client.typed.consumer import BodyUndecodable, TypedConsumer, TypedMessage, Undecodable
    from sprocket.client.typed.serializers import (
        AvroSerializer,
        BytesSerializer,
        JsonSerializer,
        ProtobufSerializer,
        PydanticSerializer,
        Serializer,
    )
    from sprocket.client.typed.table import Table
    from sprocket.client.typed.topic import Topic
    from sprocket.common.errors import SprocketError
    from sprocket.remoting.bodies.auth import UserInfo
    from sprocket.remoting.bodies.group import SubscriptionGroupConfig
    from sprocket.remoting.bodies.schedule import CatchUp, ScheduleState
    from sprocket.remoting.bodies.topic import TopicConfig
    from sprocket.remoting.credentials import Credentials, TokenCredentials
    from sprocket.remoting.tls.settings import TlsSettings
    from store.retention.leases import Lease as Lease
    from store.retention.leases import LeaseRefused as LeaseRefused
    from store.retention.leases import Leases as Leases

__version__ = "0.1.0"
__all__ = [
    "AclChange",
    "AdminClient",
    "AdminError",
    "AllocateMessageQueueAveragely",
    "AllocateMessageQueueAveragelyByCircle",
    "AllocateMessageQueueByConfig",
    "AllocateMessageQueueByMachineRoom",
    "AllocateMessageQueueConsistentHash",
    "AllocateMessageQueueStrategy",
    "AnswerUnreadable",
    "AvroSerializer",
    "BatchHandler",
    "BodyUndecodable",
    "BodyUnreadable",
    "BrokerNotFound",
    "BrokerRefused",
    "BytesSerializer",
    "CatchUp",
    "Claim",
    "ClaimStore",
    "ClientClosed",
    "ClientError",
    "ClientSettings",
    "Compression",
    "ConfigRefused",
    "ConnectFailed",
    "Connection",
    "ConnectionLost",
    "ConsumeFrom",
    "ConsumeSettings",
    "Consumer",
    "ConsumerListener",
    "Credentials",
    "DeadLetterFilter",
    "Deduplicator",
    "HandledKeys",
    "Handler",
    "IllegalArgument",
    "IllegalMessage",
    "JsonSerializer",
    "KeyWindow",
    "LiteConsumer",
    "LiteQuotaExceeded",
    "LiteStart",
    "Message",
    "MessageModel",
    "MessageQueue",
    "NameServerUnreachable",
    "OrderlyConsumer",
    "OrderlySettings",
    "PermissionDenied",
    "PopHandler",
    "PopSettings",
    "PoppedMessage",
    "PostgresClaims",
    "Producer",
    "ProtobufSerializer",
    "PullSettings",
    "PydanticSerializer",
    "RecallHandle",
    "ReceivedMessage",
    "ReconsumeLater",
    "RedisClaims",
    "Redrive",
    "RedriveFailed",
    "Redriven",
    "RemotingTimeout",
    "Reply",
    "ReplyTimeout",
    "ScheduleState",
    "Schedules",
    "SendFailed",
    "SendResult",
    "SendSettings",
    "SendStatus",
    "Serializer",
    "Session",
    "SessionLost",
    "SimpleConsumer",
    "SprocketError",
    "SqlFilter",
    "SqliteClaims",
    "SubscriptionGroupConfig",
    "Table",
    "Tail",
    "TlsSettings",
    "TlsUnusable",
    "TokenCredentials",
    "Topic",
    "TopicConfig",
    "TopicNotFound",
    "TopicNotWritable",
    "TraceSettings",
    "TransactionProducer",
    "TransactionResult",
    "TransactionState",
    "TypedConsumer",
    "TypedMessage",
    "Undecodable",
    "UserInfo",
    "__version__",
    "connect",
    "make_reply",
]

_EXPORTS = {
    "ConsumerListener": "sprocket.client.rebalance.listener",
    "BodyUndecodable": "sprocket.client.typed.consumer",
    "AvroSerializer": "sprocket.client.typed.serializers",
    "BytesSerializer": "sprocket.client.typed.serializers",
    "JsonSerializer": "sprocket.client.typed.serializers",
    "ProtobufSerializer": "sprocket.client.typed.serializers",
    "PydanticSerializer": "sprocket.client.typed.serializers",
    "Serializer": "sprocket.client.typed.serializers",
    "CatchUp": "sprocket.remoting.bodies.schedule",
    "ScheduleState": "sprocket.remoting.bodies.schedule",
    "Schedules": "sprocket.client.schedules",
    "Table": "sprocket.client.typed.table",
    "Topic": "sprocket.client.typed.topic",
    "TypedConsumer": "sprocket.client.typed.consumer",
    "TypedMessage": "sprocket.client.typed.consumer",
    "Undecodable": "sprocket.client.typed.consumer",
    "Connection": "sprocket.client.connect",
    "connect": "sprocket.client.connect",
    "Consumer": "sprocket.client.consumer",
    "ConsumeSettings": "sprocket.client.consume.consume_settings",
    "MessageModel": "sprocket.client.consume.consume_settings",
    "BatchHandler": "sprocket.client.consume.handling",
    "Handler": "sprocket.client.consume.handling",
    "ReconsumeLater": "sprocket.client.consume.reconsume_later",
    "RecallHandle": "sprocket.client.send.recall",
    "PullSettings": "sprocket.client.pull.pull",
    "ConsumeFrom": "sprocket.client.rebalance.start_offset",
    "SqlFilter": "sprocket.client.consume.subscription",
    "AllocateMessageQueueAveragely": "sprocket.client.rebalance.allocation",
    "AllocateMessageQueueAveragelyByCircle": "sprocket.client.rebalance.allocation",
    "AllocateMessageQueueByConfig": "sprocket.client.rebalance.allocation",
    "AllocateMessageQueueByMachineRoom": "sprocket.client.rebalance.allocation",
    "AllocateMessageQueueConsistentHash": "sprocket.client.rebalance.allocation",
    "AllocateMessageQueueStrategy": "sprocket.client.rebalance.allocation",
    "ClientSettings": "sprocket.client.connection.client_instance",
    "Credentials": "sprocket.remoting.credentials",
    "TokenCredentials": "sprocket.remoting.credentials",
    "Compression": "sprocket.client.compression",
    "AnswerUnreadable": "sprocket.client.errors",
    "BodyUnreadable": "sprocket.client.errors",
    "BrokerNotFound": "sprocket.client.errors",
    "BrokerRefused": "sprocket.client.errors",
    "ClientClosed": "sprocket.client.errors",
    "ClientError": "sprocket.client.errors",
    "ConnectFailed": "sprocket.client.errors",
    "ConnectionLost": "sprocket.client.errors",
    "IllegalArgument": "sprocket.client.errors",
    "IllegalMessage": "sprocket.client.errors",
    "LiteQuotaExceeded": "sprocket.client.errors",
    "NameServerUnreachable": "sprocket.client.errors",
    "PermissionDenied": "sprocket.client.errors",
    "RemotingTimeout": "sprocket.client.errors",
    "ReplyTimeout": "sprocket.client.errors",
    "SendFailed": "sprocket.client.errors",
    "SessionLost": "sprocket.client.errors",
    "TlsUnusable": "sprocket.client.errors",
    "TopicNotFound": "sprocket.client.errors",
    "TopicNotWritable": "sprocket.client.errors",
    "Message": "sprocket.client.message",
    "MessageQueue": "sprocket.client.message",
    "ReceivedMessage": "sprocket.client.message",
    "SendResult": "sprocket.client.send_result",
    "SendStatus": "sprocket.client.send_result",
    "OrderlyConsumer": "sprocket.client.orderly_consumer",
    "OrderlySettings": "sprocket.client.orderly_consumer",
    "Producer": "sprocket.client.producer",
    "Reply": "sprocket.client.send.reply",
    "make_reply": "sprocket.client.send.reply",
    "SendSettings": "sprocket.client.send.send_request",
    "TransactionProducer": "sprocket.client.transaction",
    "TransactionResult": "sprocket.client.transaction",
    "TransactionState": "sprocket.client.transaction",
    "TraceSettings": "sprocket.client.trace.recorder",
    "LiteConsumer": "sprocket.client.lite_consumer",
    "LiteStart": "sprocket.client.lite.start",
    "Tail": "sprocket.client.lite.start",
    "Session": "sprocket.client.session",
    "SimpleConsumer": "sprocket.client.simple_consumer",
    "PopSettings": "sprocket.client.pop.pop_settings",
    "PopHandler": "sprocket.client.pop.pop_subject",
    "PoppedMessage": "sprocket.client.pop.popped_message",
    "Deduplicator": "sprocket.client.deduplication.deduplicator",
    "HandledKeys": "sprocket.client.deduplication.deduplicator",
    "KeyWindow": "sprocket.client.deduplication.key_window",
    "Claim": "sprocket.client.deduplication.claims",
    "ClaimStore": "sprocket.client.deduplication.claims",
    "SqliteClaims": "sprocket.client.deduplication.sqlite_claims",
    "RedisClaims": "sprocket.client.deduplication.redis_claims",
    "PostgresClaims": "sprocket.client.deduplication.postgres_claims",
    "AdminClient": "sprocket.client.admin.admin_client",
    "AdminError": "sprocket.client.admin.admin_client",
    "ConfigRefused": "sprocket.client.admin.admin_client",
    "AclChange": "sprocket.client.admin.auth_requests",
    "SubscriptionGroupConfig": "sprocket.remoting.bodies.group",
    "TopicConfig": "sprocket.remoting.bodies.topic",
    "UserInfo": "sprocket.remoting.bodies.auth",
    "Redrive": "sprocket.client.admin.redrive",
    "DeadLetterFilter": "sprocket.client.admin.redrive",
    "Redriven": "sprocket.client.admin.redrive",
    "RedriveFailed": "sprocket.client.admin.redrive",
    "SprocketError": "sprocket.common.errors",
    "TlsSettings": "sprocket.remoting.tls.settings",
    "Lease": "store.retention.leases",
    "LeaseRefused": "store.retention.leases",
    "Leases": "store.retention.leases",
}


def __getattr__(name: str) -> object:
    module = _EXPORTS.get(name)
    if module is None:
        raise AttributeError(f"module 'sprocket' has no attribute {name!r}")
    if module.startswith("store."):
        own_packages = import_module("sprocket.common.own_packages")
        return getattr(own_packages.import_own(module, f"sprocket.{name}"), name)
    return getattr(import_module(module), name)


def __dir__() -> list[str]:
    """Return the public names, loaded or not."""
    return sorted({*globals(), *__all__, *_EXPORTS})
