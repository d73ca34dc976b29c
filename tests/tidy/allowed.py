"""The one place that allows what the rules of tidiness forbid, each with its reason.

Key: the file, then the rule (`clock`, `disk`, `network`, `randomness`, `sleep`, `file length`,
`function length`, `name`, `log line`, `machine path`).  An entry that is no longer needed fails the test.
"""

# How often tests use a private name of the product (`obj._name`).  Lower the number when there are fewer.
# What is left:
# - `tests/store/insides.py` and `tests/broker/insides.py`: steps of threads, and parts that nobody else sees.
# - Tables that must be empty when all who wait have left, such as those of held pops.
# - Functions that a test replaces, to fail or to wait at a certain step.
# - Fields of a simulated disk or network, and of other libraries, that have the name of one of ours.
MAX_PRIVATE_ACCESSES = 131

ALLOWED: dict[tuple[str, str], str] = {
    # sprocket.common
    ("sprocket/common/clock.py", "clock"): "the seam itself: SystemClock",
    ("sprocket/common/files/regular_file.py", "disk"): "edge: opens what others name, if it is a regular file",
    ("sprocket/common/spare_descriptors.py", "disk"): "edge: opens nothing, so that others can be opened later",
    ("sprocket/common/files/atomic_file.py", "disk"): "edge: small files that are replaced whole",
    ("sprocket/common/failpoints.py", "clock"): "the action `pause` of a failpoint; tests only",
    ("sprocket/common/config/configuration.py", "disk"): "edge: `load` reads the file that the operator names",
    ("sprocket/common/config/configuration_file.py", "disk"): "edge: keeps updates in the file that the operator names",
    ("sprocket/common/config/rocketmq_keys.py", "disk"): "reads a table that is part of the package",
    ("sprocket/common/logs/rolling_file.py", "disk"): "edge: the log, which must not depend on the store's disk",
    ("sprocket/engine/choice.py", "disk"): "edge: compares the compiled engine with the sources beside it",
    # client
    ("sprocket/client/deduplication/deduplicator.py", "randomness"): "edge: owners of claims, unique among all members",
    ("sprocket/client/deduplication/sqlite_claims.py", "sleep"): "edge: tries again to open a file that others hold",
    ("sprocket/client/deduplication/deduplicator.py", "sleep"): "edge: waits between two requests to a database",
    # remoting
    ("sprocket/remoting/server.py", "sleep"): "edge: the listening side's sweep",
    ("sprocket/remoting/serving/listening.py", "network"): "edge: whether the loop's socket listens by now",
    ("sprocket/remoting/flow/receive_window.py", "network"): "edge: the options of a connection that the loop has made",
    (
        "sprocket/remoting/tls/material.py",
        "disk",
    ): "edge: reads certificates and keys; OpenSSL takes a test's from files alone",
    ("sprocket/client/grpc/channel_credentials.py", "disk"): "edge: gRPC takes certificates as bytes",
    ("sprocket/remoting/tls/material.py", "clock"): "edge: from when the certificate of the test mode is valid",
    # store
    ("store/disk/disk.py", "disk"): "the seam itself: RealDisk",
    ("store/disk/real_file.py", "disk"): "part of the seam: RealDisk's files",
    ("store/disk/store_lock.py", "disk"): "part of the seam: RealDisk's lock file",
    ("store/inspection/file_view.py", "disk"): "edge: opens files read-only, whatever state they are in",
    ("store/repair/rebuild.py", "disk"): "edge: writes new queues and index files",
    ("store/repair/repair_files.py", "disk"): "edge: keeps, replaces and puts back what a repair touches",
    ("store/backup/copied_file.py", "disk"): "edge: copies files of a store and of a backup",
    ("store/backup/backup.py", "disk"): "edge: compares a backup with the store",
    ("store/backup/restore.py", "disk"): "edge: builds a store from the files of a backup",
    ("store/tier/remote_store.py", "disk"): "edge: a directory as an object store: locks and syncs that obstore lacks",
    ("store/tier/compacted_object.py", "disk"): "edge: reads files that a broker may be removing",
    ("store/tier/partial_restore.py", "disk"): "edge: reads one small file at a start",
    ("store/tier/segment_packer.py", "disk"): "edge: a process that answers on its standard output",
    ("store/tier/segment_process.py", "network"): "edge: a pair of sockets to the process that it starts",
    ("store/tier/restore.py", "disk"): "edge: builds a store from the objects of an archive",
    ("store/tier/reads/footer_files.py", "disk"): "edge: files that may be lost at any time, so no part of the store",
    ("store/tier/reads/tiered_reads.py", "sleep"): "edge: waits before a read that failed is answered",
    ("spark/bucket/plan.py", "clock"): "edge: which archived messages may still be read",
    ("spark/bucket/reader.py", "sleep"): "edge: one turn of the loop, so that a request goes out",
    ("sprocket_cli/doctor/machine_facts.py", "clock"): "edge: how long the disk takes, and when certificates end",
    ("sprocket_cli/doctor/machine_facts.py", "disk"): "edge: facts of the machine",
    ("sprocket_cli/doctor/machine_facts.py", "network"): "edge: whether a port is taken",
    ("sprocket_cli/store/backup.py", "clock"): "composition root: an injected function",
    ("sprocket_cli/commands/replicate_commands.py", "network"): "edge: the name of this host",
    ("sprocket_cli/commands/replicate_commands.py", "randomness"): "edge: a name that no other replicator has",
    ("sprocket_cli/commands/function_commands.py", "network"): "edge: the name of this host",
    ("sprocket_cli/commands/function_commands.py", "clock"): "edge: when code is deployed, and which reports are old",
    ("sprocket_cli/server/function_processes.py", "sleep"): "edge: reports again and again",
    ("sprocket/functions/package.py", "disk"): "edge: reads the code that is deployed",
    (
        "sprocket/functions/instance.py",
        "sleep",
    ): "edge: reports again and again, and shows that the loop is not blocked",
    ("sprocket/functions/host.py", "sleep"): "edge: commits offsets again and again",
    ("replicate/config.py", "disk"): "edge: reads the file that the operator names",
    ("replicate/token_file.py", "disk"): "edge: reads the token that the operator renews",
    # ha
    ("controller/elections.py", "sleep"): "edge: waits for the end of a lease, and for a replica that catches up",
    ("controller/failover.py", "sleep"): "edge: waits before it asks replicas again",
    ("ha/raft/peers.py", "sleep"): "edge: waits before it connects again, and between two looks at waiting connections",
    # acl
    ("acl/plain/files.py", "disk"): "edge: reads the files of accounts",
    ("acl/auth/files.py", "disk"): "edge: reads the file of users and policies, and the key of its passwords",
    ("acl/tokens/key_sources.py", "disk"): "edge: reads the files of keys that verify tokens",
    ("acl/tokens/key_fetch.py", "clock"): "edge: the time of one fetch, in a thread of its own",
    ("acl/auth/files.py", "randomness"): "edge: keys and nonces that nobody can guess",
    # controller
    ("controller/consensus.py", "randomness"): "composition root: nonces that nobody can guess, waits of elections",
    # broker
    ("broker/config/local_address.py", "network"): "edge: asks the system for this machine's address and name",
    ("broker/auth/replica_identity.py", "randomness"): "edge: nonces and store ids that nobody can guess",
    ("broker/server.py", "randomness"): "composition root: the default of an injected function",
    # proxy
    ("proxy/config.py", "network"): "edge: asks the system for this machine's name",
    ("proxy/server/certificates.py", "clock"): "edge: from when the certificate of the test mode is valid",
    ("sprocket_cli/server/mqproxy.py", "randomness"): "composition root: an injected function",
    ("sprocket_cli/commands/token_commands.py", "clock"): "composition root: when a token is issued",
    ("sprocket_cli/commands/token_commands.py", "randomness"): "composition root: keys and ids that nobody can guess",
    ("sprocket_cli/commands/token_commands.py", "disk"): "edge: files with keys that the operator names",
    ("proxy/server/h2corn_exchange.py", "sleep"): "edge: waits for h2corn to cancel a call whose client has gone",
    ("proxy/server/h2corn_port.py", "network"): "edge: binds the port, which h2corn only serves",
    ("proxy/server/h2corn_port.py", "disk"): "edge: files in memory, from which h2corn reads the certificate",
    ("proxy/server/h2corn_port.py", "sleep"): "edge: waits before a server that ended serves again",
    ("proxy/server/reserved_port.py", "network"): "edge: reserves the ports",
    ("proxy/workers/link.py", "network"): "edge: the line that the supervisor of workers passed on",
    ("sprocket_cli/server/proxy_workers.py", "network"): "edge: lines to workers",
    # dashboard
    ("dashboard/server.py", "randomness"): "composition root: ids of sessions and the key of forms",
    ("sprocket/contrib/django/worker.py", "sleep"): "edge: the pause between two looks for unsent tasks",
    (
        "sprocket/contrib/django/management/commands/sprocket_worker.py",
        "network",
    ): "composition root: this machine's name, in the results of its tasks",
    ("sprocket/outbox/row.py", "randomness"): "edge: names of messages, unique among all databases",
    ("sprocket/contrib/faststream/subscriber.py", "sleep"): "edge: the pause between two log lines about a refusal",
    ("dashboard/server.py", "sleep"): "composition root: an injected function",
    # sprocket.client
    (
        "sprocket/client/admin/admin_client.py",
        "sleep",
    ): "edge: asks a name server again and again until brokers are there",
    ("sprocket/client/connection/identity.py", "randomness"): "edge: a client id that no other client has",
    ("sprocket_cli/processes/tls_folder.py", "randomness"): "edge: a secret that nobody can guess",
    # spark
    ("spark/runtime/java_home.py", "disk"): "edge: set-up writes a launcher script",
    ("spark/files/log_copies.py", "disk"): "edge: reads the first records of two logs",
    ("spark/files/segment.py", "disk"): "edge: maps the segments that it reads",
    ("spark/read/log_reader.py", "disk"): "edge: opens the segments that it reads",
    ("spark/files/consume_queue.py", "disk"): "edge: opens the files of a store that it reads",
    ("spark/queues/tail.py", "disk"): "edge: reads the last entry of a queue",
    ("spark/runtime/worker_python.py", "disk"): "edge: writes a launcher script for Spark's workers",
    ("spark/runtime/stream_worker.py", "network"): "edge: connects to Spark before PySpark is imported",
    ("spark/wire/connection.py", "network"): "edge: the blocking connection of a task",
    ("spark/wire/connection.py", "clock"): "edge: waits before a request is tried again",
    ("spark/report/html_report.py", "disk"): "edge: writes the page and the charts of a report",
    ("spark/report/committed.py", "disk"): "edge: reads the file of committed offsets of a store",
    ("spark/write/sink.py", "sleep"): "edge: the pause between two attempts of a send",
    (
        "spark/tables/formats/data_file.py",
        "disk",
    ): "edge: has the files of a table on the disk before a commit names them",
    ("spark/tables/formats/data_file.py", "randomness"): "edge: names that no other task takes",
    ("spark/tables/declaration.py", "disk"): "edge: reads the files in which tables and schemas are declared",
    ("spark/tables/formats/parquet_table.py", "disk"): "edge: reads the manifest of a table",
    ("spark/tables/formats/table_place.py", "disk"): "edge: the lock of a table",
    # sprocket_cli.processes
    ("sprocket/common/processes/child_process.py", "disk"): "edge: reads the log of the process that it started",
    ("sprocket_cli/processes/supervised_process.py", "sleep"): "edge: looks at a process again and again",
    ("sprocket_cli/processes/pid_file.py", "disk"): "edge: who runs, in files and in /proc",
    ("sprocket_cli/processes/profile.py", "disk"): "edge: reads a profile's files",
    ("sprocket_cli/processes/tls_folder.py", "disk"): "edge: writes and reads a folder of certificates",
    ("sprocket_cli/processes/local_cluster.py", "disk"): "edge: a cluster's directory",
    ("sprocket_cli/processes/cluster_watch.py", "sleep"): "edge: asks members again and again while they start",
    ("sprocket_cli/processes/ports.py", "network"): "edge: binds the ports that servers are about to have",
    # sprocket_cli
    ("sprocket/remoting/flow/shedding.py", "refusal"): "refuses by the hundred, and counts them itself",
    ("broker/pop/popped.py", "refusal"): "a pop's outcomes, by code",
    ("broker/processor/pull.py", "refusal"): "a pull's outcomes, by code",
    ("broker/processor/static_pulls.py", "refusal"): "a pull's outcomes, by code",
    ("broker/send/replies.py", "refusal"): "a stored message's outcomes, by code",
    ("broker/processor/send_back.py", "refusal"): "the message is stored, but less safely than configured",
    ("broker/processor/admin/connections.py", "refusal"): "passes on a client's response",
    ("docs/pages/command.py", "disk"): "writes the pages",
    ("docs/pages/compatibility_page.py", "disk"): "reads sources and tests",
    ("docs/pages/format_page.py", "disk"): "dumps what the store writes into a temporary folder",
    ("docs/pages/tests_by_module_page.py", "disk"): "reads sources and tests",
    ("sprocket_cli/project/__init__.py", "disk"): "edge: writes a new project",
    ("sprocket_cli/store/dump.py", "disk"): "a closed pipe behind `dump` becomes /dev/null",
    (
        "sprocket_cli/mqadmin/message/query.py",
        "disk",
    ): "edge: bodies of messages go to files, as RocketMQ's tool has it",
    ("sprocket_cli/mqadmin/files.py", "disk"): "edge: lists of configurations and exports are files",
    (
        "sprocket_cli/mqadmin/consumer/connection.py",
        "disk",
    ): "`consumerStatus` writes what clients say into files, as there",
    ("sprocket_cli/server/server_process.py", "sleep"): "edge: tells again and again what the log left out",
    ("sprocket_cli/patient_admin.py", "sleep"): "edge: waits for a name server that has just been started",
}

# Attributes of objects that others set, see `late_attributes.py`.  Key: the attribute; its class is in the reason.  An
# entry that is no longer needed fails the test.
LATE_ATTRIBUTES: dict[str, str] = {
    "charged": "RemotingChannel, which remembers for a server who pays; the kernel of sends looks at it in each read",
    "checkpoints": "ReviveFigures, a record of counts to which the readers add; `Popped` has the name, too",
    "dequeued": "TimerState, which entry and delivery of the timer share",
    "enqueued": "TimerState",
    "is_cut_short": "Popped, one pop under way, to which the reader of the queues adds",
    "latest_ms": "TimerState",
    "store_host": "MessageStore: the port of a broker is known once it is bound",
    "taken_at": "ReceivedMessage, whose process queue notes when it was taken: a call for each message costs more",
    "unflushed": "TimerState",
}
