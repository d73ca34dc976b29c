"""How long messages are kept, and what happens before the disk is full: rules, cleaning, leases, back-pressure."""
