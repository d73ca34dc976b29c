"""Masters and slaves of both kinds in one group."""
