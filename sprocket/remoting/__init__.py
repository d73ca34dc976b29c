"""The remoting protocol: bytes and commands.  Knows frames, headers and bodies; knows no topic, file or disk."""
