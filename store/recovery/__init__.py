"""What a start does: brings log and ConsumeQueues into agreement, and what it needs to have been written down."""
