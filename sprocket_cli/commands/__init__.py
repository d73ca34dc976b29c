"""Commands of `sprocket` that ask a cluster."""
