"""Replication of topics and groups' offsets between clusters, which may be far apart.

How it fits together, from the bottom:

- `protocol/` is pure.  `marks.py` is the property that each copy carries: where it has been and which message of the
  source it is.  `copies.py` makes copies and batches.  `offset_map.py` translates offsets.  `position.py` says where a
  queue goes on.  `read_ahead.py` says which pulls are under way.  `steps.py` says which step of a failover is allowed.
- `records.py` is what the target knows about a link: a compacted topic, `TOPIC`, read as a table.
- `config.py` reads the operator's file.  `cluster.py` is the connection to one cluster.
- `queue_source.py` and `queue_target.py` are one queue at each end; `queue_copier.py` copies it, and `places.py` reads
  where copies are that it does not know.  Both know only the protocols of `ends.py`, so `tests/sim/replicate` drives
  them over simulated clusters.
- `link.py` runs all queues of one direction, `group_offsets.py` writes groups' offsets, `service.py` runs all links.
- `report.py` and `failover.py` are what `sprocket replicate status`, `failover`, `failback` and `rehearse` do, and
  what the dashboard shows.

A position is in the target, in the messages themselves, so a crash leaves nothing to reconcile.  A target broker stores
each number of a queue once, so two replicators at the same time double nothing (docs/decisions/051).
"""
