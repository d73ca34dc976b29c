"""The proxy: RocketMQ 5 clients speak gRPC (apache.rocketmq.v2) to it, and it speaks to brokers for them.

`parts.build` puts it together.  `server` has the port and the calls, `activity` one module for each group of methods,
`clients` what is known of connected clients, `handles` the receipt handles that are renewed for them, `convert` the
messages on both sides, `brokers` the way to brokers and name servers, `wire` the generated protocol.
"""
