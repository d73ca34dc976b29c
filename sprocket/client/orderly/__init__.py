"""Parts of the orderly consumer."""
