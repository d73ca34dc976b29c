"""Request handlers of pop: take messages, acknowledge them, change their invisible time."""
