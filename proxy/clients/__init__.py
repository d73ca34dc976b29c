"""Connected clients: their settings, their telemetry streams, and when they were last seen."""
