"""Access control: accounts, signatures and permissions.  Pure, except the files that say they are edges."""
