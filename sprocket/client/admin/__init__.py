"""Administration of a cluster: topics, groups, users, messages."""
