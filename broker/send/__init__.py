"""The way of a message into the store: admission, intake, waiting for the confirm offset, response."""
