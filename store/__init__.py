"""The message store: records and files.  Knows CommitLog and ConsumeQueue; knows no socket."""
