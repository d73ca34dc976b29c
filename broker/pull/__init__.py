"""Pulls: their plans and kernels.  `broker.processor.pull` is the handler."""
