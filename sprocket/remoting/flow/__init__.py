"""Flow control of connections: back-pressure, shedding, and bounds on held bytes."""
