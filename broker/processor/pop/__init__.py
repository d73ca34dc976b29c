"""Request handlers of pop: pop messages, acknowledge them, change their invisible time."""
