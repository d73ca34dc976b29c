"""Two clusters that are far apart and copy each other's topic, under faults."""
