"""Controller mode of a broker: its id and its role come from controllers.

`tenure` has the borders.  Source: RocketMQ 5.3.3, `ReplicasManager`.
"""
