"""The message store: records and files.  It knows the CommitLog and ConsumeQueues, and no socket."""
