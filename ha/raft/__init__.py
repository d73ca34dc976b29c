"""Consensus among the members of one group, which controllers and DLedger brokers share.

`consensus` is the border: what a user of this package gives and gets.  `member` is what runs.  pysyncobj decides about
terms, votes, entries and commits; everything that touches a disk, a socket or a peer's bytes is written here.
docs/failover.md, section "Raft", has the files, the frames and what is relied upon.
"""
