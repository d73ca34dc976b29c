"""Metrics, monitors and traces, with the programs that read them."""
