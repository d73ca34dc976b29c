"""Every bound on what a peer can make us hold, in one place.

A limit is checked before anything is allocated.  Defaults follow RocketMQ where it has one.
"""

# A frame's length field counts everything after itself (`com.rocketmq.remoting.frameMaxLength`).
MAX_FRAME_BYTES = 16 * 1024 * 1024
# A header's length has 24 bits on the wire; real headers stay far below this.
MAX_HEADER_BYTES = 1024 * 1024
# Entries of a header's extFields map.
MAX_EXT_FIELDS = 512
# What a body may inflate to: 4 times a whole frame.
MAX_INFLATED_BYTES = 64 * 1024 * 1024
# Unsent response bytes at which a connection's reads are paused, and at which it is closed.
WRITE_PAUSE_BYTES = 4 * 1024 * 1024
WRITE_CLOSE_BYTES = 64 * 1024 * 1024
# A peer that stays paused this long is closed.
WRITE_STALL_S = 30.0
# A partly received frame must be complete within this time.
FRAME_DEADLINE_S = 30.0
# Of all connections of a server together: partly received frames, and responses of peers that do not read.  Beyond it
# those go that have been so for the longest.
MAX_PARTIAL_BYTES = 512 * 1024 * 1024
MAX_UNSENT_BYTES = 512 * 1024 * 1024
# A TLS handshake must be done within this time, and with so many bytes of the peer's: its certificates above all.
TLS_HANDSHAKE_S = 10.0
TLS_HANDSHAKE_BYTES = 256 * 1024

# `maxMessageSize` and the length fields of a record.
MAX_MESSAGE_BYTES = 4 * 1024 * 1024
MAX_PROPERTIES_BYTES = 32767
# Messages in one batch of a client, and light queues that they enter together.  RocketMQ has no limit: its clients
# bound a batch by 4 MiB, and its example of splitting makes batches of 13,000.  The ids of so many still fit a header.
MAX_BATCH_MESSAGES = 16 * 1024
# The records of such a batch may have this beyond twice `maxMessageSize`: what RocketMQ's encoder allows beside a body.
MAX_BATCH_GROWTH_BYTES = 64 * 1024
MAX_TOPIC_CHARS = 127
# RocketMQ allows 255, and fails to make the retry topic of a group that has more than 248: a topic is a directory,
# whose name has at most 255 bytes, and the retry topic's begins with %RETRY%.
MAX_GROUP_CHARS = 248
