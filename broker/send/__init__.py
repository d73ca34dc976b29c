"""Steps of a send: admission, intake, append, waiting for the confirm offset, response."""
