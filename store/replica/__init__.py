"""The log as masters and slaves of one group exchange it."""
