"""Two tenants at one broker, one of them hostile: what the other feels of it."""
