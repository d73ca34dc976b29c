"""Three whole brokers under three controllers in virtual time: leases, elections, changes of roles."""
