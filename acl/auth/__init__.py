"""ACL 2.0: users, policies, and their files."""
