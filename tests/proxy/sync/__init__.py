"""What proxies tell each other."""
