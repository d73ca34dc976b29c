"""Steps of a send: plan, intake, append, waiting for the confirm offset, response."""
