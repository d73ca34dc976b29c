"""Compiled wire protocol: frames, headers, responses, signatures, and the frames of replication."""
