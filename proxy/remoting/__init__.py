"""The remoting port: clients of RocketMQ 4, and tools, reach the brokers through the proxy."""
