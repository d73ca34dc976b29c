"""Records of one append as columns of arrays: how pure Python stores and moves many alike messages at once."""
