"""One file per kind of request: each makes the routes that it serves."""
