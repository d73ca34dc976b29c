"""`sprocket doctor`: what may go wrong with a machine, a configuration and a cluster, and what to do about it."""
