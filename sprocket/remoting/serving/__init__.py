"""What a server has around its table of routes: its ports, its settings, its configuration, its latency."""
