"""Access control of a broker: accounts of ACL 1.0, users and policies of ACL 2.0."""
