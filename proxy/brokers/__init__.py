"""The way to brokers and name servers."""
