"""Limits on the bytes and the items that a peer can make this process hold.

A limit is checked before anything is allocated.  Defaults follow RocketMQ where it has one.  Limits of JSON bodies as a
whole are in `sprocket.remoting.codec.body_limits`; a limit that one part alone knows is in that part.
"""

# A frame's length field counts everything after itself (`com.rocketmq.remoting.frameMaxLength`).
MAX_FRAME_BYTES = 16 * 1024 * 1024
# A header's length has 24 bits on the wire; real headers stay far below this.
MAX_HEADER_BYTES = 1024 * 1024
# Entries of a header's extFields map.
MAX_EXT_FIELDS = 512
# Size that a body may inflate to: 4 times a whole frame.
MAX_INFLATED_BYTES = 64 * 1024 * 1024
# Unsent response bytes at which a connection's reads are paused, and at which it is closed.
WRITE_PAUSE_BYTES = 4 * 1024 * 1024
WRITE_CLOSE_BYTES = 64 * 1024 * 1024
# A peer that stays paused this long is closed.
WRITE_STALL_S = 30.0
# A partly received frame must be complete within this time.
FRAME_DEADLINE_S = 30.0
# For all connections of a server together: partly received frames, and responses to peers that do not read.  Above it
# the connections that stalled first are closed.
MAX_PARTIAL_BYTES = 512 * 1024 * 1024
MAX_UNSENT_BYTES = 512 * 1024 * 1024
# Limits of a TLS handshake: its time, and the peer's bytes, which are mostly certificates.
TLS_HANDSHAKE_S = 10.0
TLS_HANDSHAKE_BYTES = 256 * 1024

# `maxMessageSize` and the length fields of a record.
MAX_MESSAGE_BYTES = 4 * 1024 * 1024
MAX_PROPERTIES_BYTES = 32767
# Messages in one batch of a client, and light queues that they enter together.  RocketMQ has no limit: its clients
# bound a batch by 4 MiB, and its example of splitting makes batches of 13,000.  The ids of so many still fit a header.
MAX_BATCH_MESSAGES = 16 * 1024
# Bytes that the records of a batch may have beyond twice `maxMessageSize`, as RocketMQ's encoder allows beside a body.
MAX_BATCH_GROWTH_BYTES = 64 * 1024
MAX_TOPIC_CHARS = 127
# RocketMQ allows 255, and fails to make the retry topic of a group that has more than 248: a topic is a directory,
# whose name has at most 255 bytes, and the retry topic's begins with %RETRY%.
MAX_GROUP_CHARS = 248
# Since 5.3.4 RocketMQ allows no more in the name of a new group.
MAX_NEW_GROUP_CHARS = 120

# Items in one request.  Clients stay far below: a client has a few groups and some ten subscriptions.
MAX_HEARTBEAT_GROUPS = 1_000  # of producers, and as many of consumers
MAX_CONNECTION_GROUPS = 4_000  # as well: what the end of a connection must remove at once
MAX_HEARTBEAT_SUBSCRIPTIONS = 2_000  # of all groups together
MAX_SUBSCRIPTION_TAGS = 1_000
MAX_LOCKED_QUEUES = 10_000
MAX_LISTED_TOPICS = 1_000
MAX_LISTED_GROUPS = 1_000
MAX_BATCH_ACKS = 1_000  # each for any number of messages of one pop
MAX_REGISTERED_TOPICS = 200_000
MAX_TOPIC_QUEUES = 65_535  # of one topic on one broker
# What a route may make a client or a proxy list: queues on each member of each broker group, and addresses.  A name
# server without access control believes any stranger.
MAX_ROUTE_QUEUES = 4 * MAX_TOPIC_QUEUES
MAX_ROUTE_ADDRESSES = 4_096

# The KV configuration of a name server.  A namespace of 20,000 topics with the order of their queues has 2 MiB.
MAX_KV_VALUE_BYTES = 64 * 1024
MAX_KV_NAME_BYTES = 1024
MAX_KV_NAMESPACE_BYTES = 2 * 1024 * 1024
MAX_KV_NAMESPACES = 1_000
MAX_KV_BYTES = 8 * 1024 * 1024

# What the controllers know.  RocketMQ has no limits.
MAX_CONTROLLER_GROUPS = 4_096
MAX_CONTROLLER_REPLICAS = 20_000  # of all groups together
MAX_GROUP_REPLICAS = 64
MAX_CONTROLLER_NAME_CHARS = 255  # of clusters, groups and addresses
MAX_CHECK_CODE_CHARS = 512
MAX_CONTROLLER_COMMAND_BYTES = 64 * 1024
MAX_SYNC_STATE_NAMES = 4_096  # groups in one query
MAX_LIVE_BROKERS = 20_000
MAX_HEARTBEAT_TIMEOUT_MS = 3_600_000
