"""Who may do what: accounts, signatures and permissions.  Pure; what reads files says so."""
