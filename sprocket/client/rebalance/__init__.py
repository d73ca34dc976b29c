"""The queues of a consumer: who gets which, where it starts, and how its offsets are kept."""
