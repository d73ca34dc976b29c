"""RocketMQ's replication protocol of controller mode, for groups with Apache RocketMQ's brokers.

Source: RocketMQ 5.3.3, `org.apache.rocketmq.store.ha.autoswitch`.
"""
