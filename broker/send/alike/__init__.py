"""Sends whose headers are alike, served as columns of arrays: how pure Python serves the usual sends of a long read."""
