"""Consumer groups of a broker, and how their queues are assigned."""
