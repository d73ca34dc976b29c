"""The wire protocol of RocketMQ 5 clients: the definition, and what grpcio-tools generates from it."""
