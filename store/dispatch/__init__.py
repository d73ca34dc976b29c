"""ConsumeQueue entries for records that are in the log already: after recovery, and on a slave."""
