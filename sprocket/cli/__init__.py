"""What a user types: `sprocket`, and the names that RocketMQ's operators type.

Modules here import at the top only what parsing a command line needs; a command imports the rest when it
runs, so that ``--help`` and completion are quick and a client command loads no server.
"""
