"""Reading by ConsumeQueue: which queues there are, up to where, and the records that ranges of their entries name."""
