"""ConsumeQueue entries for records that are already in the log: in recovery, and on a slave."""
