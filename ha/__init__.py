"""Replication of a master's log to its slaves, over RocketMQ's two-message protocol or in a session.

`protocol` has the two messages.  `master_link` and `slave_link` are the two ends of one connection.  They are fed with
bytes and time, and touch neither a socket nor a file.  `replicas` keeps what each slave has acknowledged.  Two Sprocket
brokers greet (`hello`, `greeting`) and then exchange frames (`session`, `master_session`, `slave_session`).
`listener` and `follower` are the sockets.
"""
