"""Our client beside nats-py on JetStream and aiokafka on Kafka, each with its own server on this machine."""
