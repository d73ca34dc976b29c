"""Pages: each module answers the requests of one subject."""
