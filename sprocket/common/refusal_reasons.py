"""Reasons for which a server refuses a request: one counter each, and one line each in docs/figures.md.

A file of its own, in the lowest layer: the store, access control and every handler name their reasons from this list.
"""

from enum import Enum, unique


@unique
class Reason(Enum):
    """Reason of a refusal; the value says when it applies.

    An error that names none counts under the reason of its response code (`sprocket.remoting.refusals`).
    """

    # Before a handler sees the request
    OVERLOAD = "requests waited too long, see waitTimeMillsInSendQueue and waitTimeMillsInPullQueue"
    FRAME_LENGTH = "a frame's length is over the limit, or below 4; the connection is closed"
    MALFORMED_FRAME = "the bytes are no frame or no header; the connection is closed"
    CODE_NOT_SUPPORTED = "the server does not serve the request code"
    INVALID_HEADER = "the header cannot be read, or a field is missing or has a wrong type"
    ACCESS_DENIED = "access control denies the request"
    WRONG_SIGNATURE = "the account does not exist, or the signature or password is wrong"
    LOCKED_OUT = "too many wrong signatures came from the address, see authFailuresPerSecond"
    SLAVE = "a slave does not serve the request"
    MASTER_WAITS = "the master waits for a slave's copy of its log, see haTailRecoveryWait"
    NO_LEASE = "no controller has confirmed this master lately, see enableControllerMode"
    NOT_READY = "the server has just started, see needWaitForService and startAcceptSendRequestTimeStamp"
    OTHER_BROKER = "the broker that has the data of a static topic does not answer, or refuses"
    TURNED_OFF = "a configuration key turns the request off"

    # The store, before anything is written
    DISK_FULL = "the disk is full, see diskSpaceWarningLevelRatio"
    NO_DESCRIPTOR = "no descriptor is left to open a file with, see `ulimit -n`"
    PAGE_CACHE_BUSY = "a write took longer than osPageCacheBusyTimeOutMills"
    SLOW_FLUSH = "a flush takes longer than maxFlushTime"
    FLUSH_BEHIND = "more than maxUnflushedBytes are unflushed"
    WAITING = "messages that wait for their flush or for slaves hold more than maxWaitingBytes"
    REPLICAS_NOT_ENOUGH = "fewer replicas are in sync than minInSyncReplicas"
    DISK_FAILED = "a write or sync failed; the broker stops"
    STORE_UNAVAILABLE = "the store cannot carry out the request for another reason"

    # Topics and queues
    TOPIC_NOT_EXIST = "the topic does not exist, and may not be created on first use"
    TOPIC_NOT_WRITABLE = "the topic has no write permission"
    TOPIC_NOT_READABLE = "the topic has no read permission"
    SYSTEM_TOPIC = "clients may not send to this system topic"
    QUEUE_NOT_EXIST = "the topic does not have the queue"
    BROKER_NOT_WRITABLE = "brokerPermission has no write permission"
    BROKER_NOT_READABLE = "brokerPermission has no read permission"

    # Groups and subscriptions
    GROUP_NOT_EXIST = "the consumer group does not exist"
    GROUP_DISABLED = "consumeEnable of the group is false"
    GROUP_FORBIDDEN = "the group is forbidden to read the topic, or to broadcast"
    SUBSCRIPTION = "the subscription is unknown, outdated or cannot be parsed"
    CLIENT_NOT_ONLINE = "the client that the request concerns is not connected, or does not answer"
    QUOTA = "a quota is used up, see [quotas.md](quotas.md)"
    NAMESPACE = "a limit of the namespace, see [namespaces.md](namespaces.md#limits-of-a-namespace)"
    COLD_READ = "the group reads too much that is not in memory, see coldDataFlowControlEnable"

    # The content of the request
    MESSAGE_TOO_LARGE = "the body, the properties or the record exceed their limit, see maxMessageSize"
    MESSAGE_ILLEGAL = "the message contradicts itself, or names what it may not"
    TRANSACTION_ENDED = "the transaction has ended, is unknown, or belongs to another group"
    TOO_LATE = "the client no longer waits for the response"
    INVALID_BODY = "the body cannot be read, or exceeds the limits for its kind"
    INVALID_PARAMETER = "a parameter is outside its limits"

    # Reasons of response codes, for refusals that name no reason of their own
    NO_PERMISSION = "any other NO_PERMISSION"
    NOT_FOUND = "what the request names does not exist"
    BUSY = "any other SYSTEM_BUSY"
    SERVICE_NOT_AVAILABLE = "any other SERVICE_NOT_AVAILABLE or SLAVE_NOT_AVAILABLE"
    ILLEGAL_OPERATION = "any other ILLEGAL_OPERATION"
    OTHER = "any other refusal"
    BUG = "an error in a handler; the log has its traceback"
