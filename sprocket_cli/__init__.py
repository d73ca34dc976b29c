"""The commands: `sprocket`, and RocketMQ's `mqadmin`, `mqbroker` and `mqnamesrv`.

At the top, modules import only what parsing a command line needs; a command imports the rest when it runs.  So
``--help`` and completion are quick, and a client command loads no server.
"""
