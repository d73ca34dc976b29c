"""ACL 1.0: accounts of ``plain_acl.yml`` and their permissions."""
