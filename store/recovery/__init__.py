"""What a start does: it makes log and ConsumeQueues agree, and reads the notes that the last run left for it."""
