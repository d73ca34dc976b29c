"""Replication: moves the bytes of a master's log to its slaves, over RocketMQ's two-message protocol or in a session.

`protocol` has the two messages; `master_link` and `slave_link` are the two ends of one connection, fed with bytes and
time; `replicas` keeps what every slave has acknowledged.  Two ends that are both Sprocket greet (`hello`, `greeting`)
and speak in frames (`session`, `master_session`, `slave_session`).  None of them touches a socket or a file.
"""
