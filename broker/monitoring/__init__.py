"""What operators see of a broker: metrics and figures that are computed from its tables."""
