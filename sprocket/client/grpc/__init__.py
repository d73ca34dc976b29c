"""The client over gRPC: ``sprocket.connect("grpc://host:8081")`` talks to a proxy instead of name servers and brokers.

The border lies under the classes of the remoting client, at the objects that send requests:

- `GrpcInstance` is a `ClientInstance` whose routes come from QueryRoute, whose heartbeats go to the proxy, and which
  holds the telemetry stream (`session.py`).  Tasks, route cache, refreshes and outages are those of the base.
- `GrpcSender` is a `Sender` that calls SendMessage.  `Producer` above it checks messages, bounds outstanding sends,
  gathers batches and streams `send_many` as ever.  `GrpcTransactionProducer` ends transactions by EndTransaction and
  answers RecoverOrphanedTransactionCommand.
- `GrpcPops` is a `PopRequests` that calls ReceiveMessage, AckMessage and ChangeInvisibleDuration.  `SimpleConsumer`
  above it renews, iterates, keeps what a cancelled receive took, and runs handlers.
- `GrpcConsumer` is a `Consumer` fed by such a `SimpleConsumer`: inbox, handling by key, `run` and the methods of
  messages are those of `Consumer`; an acknowledgement goes to the receipt of its message, not to an offset.

So `Message`, `ReceivedMessage`, `PoppedMessage`, `Settlement`, `Renewal`, `Handling`, typed topics and all errors are
shared, and mypy sees the classes that it knows: what `connect` returns is a `Connection`.

`calls.py` owns the channels, the signature and the mapping of failures to `sprocket.client.errors`; `convert.py` the
form of messages and is pure.  The protocol has no administration, no offsets of queues to seek, no request-reply, no
idempotent sends, no broadcasting and no choice of a queue: `refused.py` says so with one error that names the way out.

All calls go to the endpoints that the application named, one at a time and the next one after a failure; the endpoints
in routes are not used, because a proxy behind a load balancer names addresses that only its own network can reach.
"""
