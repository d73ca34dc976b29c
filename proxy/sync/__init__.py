"""What proxies tell each other: the members of consumer groups."""
