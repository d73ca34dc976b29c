"""Stock Java clients at a broker: RocketMQ's own tests, pops, transactions, light queues, refusals."""
