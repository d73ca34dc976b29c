"""Plans: what is decided about a kind of request before a message is touched.  See docs/engine-requests.md."""
