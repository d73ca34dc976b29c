"""Writer of docs/replication-protocol.md, from the layouts with which the code reads and writes.

Run as ``python -m docs.pages.replication_page <file>`` (`make docs`); a test compares the file with its output.
"""

import re
import struct
from typing import Final

from broker.replicated_table import changes_name
from broker.replication.table_stream import LOOK_S
from docs.pages.command import write
from ha import common_prefix as _common
from ha import hello, session
from ha import table_queue as _queue
from ha.autoswitch import messages
from ha.epochs.epoch_history import MAX_EPOCHS
from ha.greeting import Credentials, MasterGreeting, SlaveGreeting
from ha.hello import Identity
from ha.session import Field, FrameType, Layout
from sprocket.remoting.codes import RequestCode

_TYPES: Final = {"B": "u8", "H": "u16", "I": "u32", "h": "i16", "i": "i32", "q": "i64"}
_HEAD: Final = """\
# The replication protocol

Written by `make docs` from the layouts in the code; do not edit.

A slave connects to its master's `haListenPort`. If either end is Apache RocketMQ, both speak RocketMQ's two messages.
Slave to master: the end of its log (i64). Master to slave: `fromPhyOffset` (i64), `size` (i32) and `size` bytes of the
log; without bytes it is a heartbeat. In controller mode both speak RocketMQ's AutoSwitch protocol in place of the two
messages, [see below](#with-apache-rocketmq-in-controller-mode). Two Sprocket brokers speak sessions instead, which the
rest of this page describes. All integers are big-endian; u8 to u32 are unsigned, i16 to i64 are signed.
`haSessionEnable = false` at either end turns sessions off.

## Choice of the protocol

A slave without access control and without `haSecretFile`, or with `haAllowPlainPeers`, asks first. It sends request
{negotiate} (NEGOTIATE_HA_SESSION: cluster, broker name, broker id, its highest version) to the master's port for
clients. A RocketMQ broker responds REQUEST_CODE_NOT_SUPPORTED; then both speak the two messages, byte for byte. A slave
that gets no response, or another refusal, tries again later: a failing link never turns a session into a plain
connection. A slave that knows only `haMasterAddress`, and no name server with the master's address, speaks the two
messages.

A slave with access control or `haSecretFile`, without `haAllowPlainPeers`, does not ask. It connects to `haListenPort`
and greets. A request to the port for clients would carry a signature, and its address may come from a name server
where anybody can register a broker. See [security.md](security.md#other-brokers).

The master decides by the first byte of a connection. 0x16 begins a TLS handshake; inside TLS the first byte decides
again. A session's first byte is negative as a signed number, and neither of RocketMQ's protocols begins with one. These
two cannot be told apart by their bytes, so the mode decides: with `enableControllerMode` a slave without a session
speaks AutoSwitch, otherwise the two messages. Wherever this page says "the two messages" about the choice, TLS,
authentication or tables, it holds for AutoSwitch too.

## TLS

The response to NEGOTIATE_HA_SESSION says with `takesTls` whether the port for slaves accepts TLS. It does unless the
master has `tls.server.mode = disabled`. A slave that does not ask uses TLS if it has `tls.enable`. With
`haAllowCleartext` it alternates between TLS and cleartext until the master answers. RocketMQ's port never accepts TLS.
The certificates are those of the ports for clients: the master's `tls.server.*`, the slave's `tls.client.*`.

| Master | Slave | Connection to `haListenPort` |
|---|---|---|
| accepts TLS | `tls.enable` (by default where its own `tls.server.mode` is `enforcing`) | TLS |
| accepts TLS, `permissive` | no `tls.enable` | cleartext |
| `enforcing` | no `tls.enable`, or RocketMQ's | refused at the first byte, unless the master has `haAllowCleartext` |
| accepts no TLS, or RocketMQ's | `tls.enable` | not followed, unless the slave has `haAllowCleartext` |

## Greeting

The slave sends HELLO, the master WELCOME, the slave PROOF. Each is an envelope, a body, and a CRC-32 (u32) of both.
A text is a length (u16, at most {text}) and UTF-8.

{envelope}

{hello_table}

After the numbers of HELLO: cluster, broker name, id of the store. A slave with a secret adds the master's address,
unless the address comes from `haMasterAddress`. The master refuses a HELLO with an address other
than its own `brokerIP2:haListenPort`, because then an impostor relays the greeting. PROOF is {proof} bytes, zeros
without a secret.

{welcome_table}

In controller mode both ends speak version 2 of the greeting, whose HELLO has more numbers, see
[controller mode](#controller-mode):

{hello_2_table}

After the numbers of WELCOME: cluster, broker name, id of the store, the reason of a refusal; then the master's proof,
{proof} bytes, zeros without a secret.

HELLO of the slave 1 of `DefaultCluster/broker-a`:

```
{hello_dump}
```

### Authentication

With `haSecretFile` at both ends each proves that it knows the secret, before any of the log is sent. A proof is an
HMAC-SHA256, keyed with the file's content without surrounding white space. It covers a label of the proving end
(`sprocket-ha-master`, `sprocket-ha-slave`) and both messages with their nonces, identities and the epoch; the slave's
also covers the master's proof. Each part is preceded by its length (u32). Use 32 random bytes or more: anyone who sees
a greeting can test guesses.

Without the file, brokers with access control (`aclEnable`, `authenticationEnabled`) derive the secret from the account
with which they sign. It is the HMAC-SHA256, keyed with the account's secret key, of `sprocket replication 1`, a zero
and the account's name. Both ends must therefore sign with the same account. A broker that signs nothing uses random
bytes, which no other broker knows.

| Master | Slave | Result |
|---|---|---|
| no secret | no secret | no authentication; the log says `authentication=False` |
| secret | the same | both prove it |
| secret | another one | refused by both |
| secret | none, or a session's without one | refused with the reason |
| none | secret | refused with the reason |
| secret | plain protocol | refused, unless `haAllowPlainPeers` |
| plain protocol | secret | not followed, unless `haAllowPlainPeers` |

The master refuses a slave of another cluster or broker name, or with the master's own id. A slave counts once: if one
with the same cluster, name and id connects again, the older connection is closed. The bytes after the greeting are
checked with CRCs and epochs; they are neither signed nor, without TLS, encrypted.

## Frames

{head}

The CRC covers the first {crc_at} bytes of the head and the body. The *epoch* is a number that differs for each start of
a master (the time of the start, ms); in controller mode it is the master epoch of the controllers. A frame of another
epoch ends the connection, so a report never acknowledges what another master has sent. A body has at most {max_master}
bytes from a master and {max_slave} from a slave; the size is checked before anything is kept.

| Type | Name | `offset` | Body |
|---:|---|---|---|
{types}

{layouts}

## Search for the common prefix

The slave sends RANGE, the master STATE. The slave compares by checksum the end of the shorter log, then ranges of twice
the size before it, until one is equal; each has at most {max_range} bytes, all together {max_search}. Then it halves
the distance to the next range. The common prefix ends with its last whole record.

- The slave's whole log is the beginning of the master's: RESUME, and the log follows.
- The master's whole log is the beginning of the slave's: SURPLUS. A SYNC_MASTER after an unclean stop accepts no
  messages for at most `haTailRecoveryWait` (it responds SERVICE_NOT_AVAILABLE to sends). Meanwhile it fetches that tail
  with FETCH_TAIL and TAIL; then it starts. It waits for one slave. If several may have more, the first to connect
  decides; without a secret, any program can be the first. With `minInSyncReplicas` of 2 or more a SYNC_MASTER waits
  after any stop until a slave has its whole log; meanwhile consumers read nothing. Any other master responds TRUNCATE.
- A SYNC_MASTER with an empty store fetches all that the slave keeps, then its tables with FETCH_TABLES, SLAVE_TABLE and
  SLAVE_TABLES_END. It does so whether the store is new or its disk was lost; see below.
- The logs diverged: the slave copies what it has after the common prefix to `cut/` of its store, durably notes where
  its log must end, and restarts. The start truncates log, queues and index (see [format.md](format.md), `truncate`).
- The logs have nothing in common, as with an ASYNC_MASTER with a new disk, or the master no longer keeps the slave's
  offset: nothing is changed. The slave's log line `ha_diverged` says which store holds data.

With RocketMQ at the other end, a log that does not fit ends the connection; the log line gives the reason.

## Controller mode

A broker in controller mode speaks version 2, any other broker version 1. The two refuse each other by name: a master in
controller mode counts slaves by the ids that controllers assigned. Brokers of an earlier release know version 1 alone.

- The epoch of the session is the master epoch of the controllers. A slave tells in HELLO the newest epoch that it
  knows. If that is newer than the master's, the master refuses the slave after its proof, and asks the controllers. A
  slave takes nothing from a master of an older epoch.
- Each broker keeps the epochs of its log in `storePathEpochFile`, in RocketMQ's format (see [format.md](format.md)). A
  master's epoch is on its disk before the master appends. A slave has the start of an epoch on its disk before it
  appends the first byte of that epoch. A log that ends before an epoch begins loses that epoch at the next start.
- The master sends its epochs (EPOCHS, at most {max_epochs}) before STATE. The slave finds the last epoch that both logs
  have with the same start. They agree up to the end of that epoch in the log in which it ends first. The search for the
  common prefix begins there, so a checksum verifies it. If the histories have no epoch in common, the search begins at
  the end of the shorter log.
- If both histories begin with the first byte of the log and have no epoch in common, not even that byte is common. The
  slave then truncates its whole log and keeps it aside.
- Before RESUME the slave takes over the master's epochs up to the end of its log, and sends them (SLAVE_EPOCHS). The
  master refuses an end that does not fit to its own epochs.
- No tail is fetched from a slave: the controllers elected the best log.

## A master with an empty store

A SYNC_MASTER with an empty log refuses sends and questions about offsets (SERVICE_NOT_AVAILABLE) until it knows that no
slave holds data:

| It finds | It does |
|---|---|
| a slave with data | fetches its log and tables, then starts |
| every other member of the group connected with an empty log | starts at once |
| name servers know no other member, and none connected | starts after `haTailRecoveryWait` |
| name servers know a member that has not connected | waits; `event=empty_master_waits` names it |
| no name server answers | waits |

`haTailRecoveryWait = 0` starts at once and recovers nothing. A slave that speaks the two messages can show that its log
is empty, but cannot send data; the master then waits until that slave is stopped or replaced. An ASYNC_MASTER with an
empty store starts at once. Its slave keeps its log, topics and offsets, stops following, and logs that.

## With Apache RocketMQ in controller mode

AutoSwitch, the protocol of RocketMQ 5.3.3's `AutoSwitchHAConnection` and `AutoSwitchHAClient`. Nothing in it proves who
the ends are.

{autoswitch}

1. The slave sends its handshake. The master answers with its own: the end of its log, and its epochs (at most {epochs}
   are read).
2. The slave looks for the last epoch that both have with the same start. Both logs are equal up to the earlier end of
   that epoch. What the slave has after it is copied to `cut/` of its store and truncated, as described above. If no
   epoch is common, the slave keeps its log and does not follow; the log line is `ha_diverged`.
3. The slave reports the end of its log. A Sprocket slave reports up to 4 KiB less at first, and compares these bytes.
   A slave with an empty log reports 0. Then a master begins with the first segment that it keeps, with
   `sync_from_last_file` with the last one.
4. The master sends its log, no piece across the end of an epoch. The slave has an epoch in its `epochFileCheckpoint`
   before any of its bytes, and answers with reports. Its consumers see the log up to `confirm_offset`.

Either end sends a heartbeat after `haSendHeartbeatInterval` without a message, and closes after
`haHousekeepingInterval` without one from the other end.

What RocketMQ's ends do differently:

- Its master gives the last piece of an epoch the next epoch's number and start. So an epoch counts from its start on,
  whatever a header says. A Sprocket master gives each piece the epoch of its bytes.
- Its master sends nothing that precedes its first epoch. A Sprocket slave then refuses to follow and says why. A
  Sprocket master sends these bytes with the epoch -1.
- Its slave notes an epoch from a heartbeat, before anything was written in it. A Sprocket master tells an epoch with
  its first byte.
- Its slave repeats the handshake if half an answer arrived, and refuses a second answer. A Sprocket master answers
  once.
- Its slave reports for the first time after `haSendHeartbeatInterval`, so a Sprocket master waits that long for it.

## Tables

The master looks for changes every {look} ms. Of consumer offsets it sends the changes (`{changes}`, JSON: `topic@group`
to queue id to offset). Of another table that changed it sends all, in the form of the response to RocketMQ's GET_ALL_
request. A new slave gets all tables. Each TABLE follows the log that the master had at the look. The slave applies it
at that place, so it has that log. A slave that lags gets up to {waiting} updates, and later all tables again.

Topics and schedules do not wait for a look: a changed table precedes the next LOG, with offset 0. So a slave that has a
message has its topic. Of schedules the master sends the changes (`schedulesChanges`), and all to a new slave.

With SYNC_MASTER a request that changes a topic, group, schedule, quota, namespace, user, policy, revoked token or
request mode is answered when the slaves in sync have the change. A record in SELF_TEST_TOPIC follows it. The next LOG
is preceded by all of these tables that changed, so a slave that acknowledges the record has the change. If no
Sprocket slave is in sync, the answer does not wait, and its remark says so; after `slaveTimeout` it is
FLUSH_SLAVE_TIMEOUT. RocketMQ's master never waits; its slaves ask for tables themselves, so for those nobody waits here
either. Beside a Sprocket slave, a slave of RocketMQ acknowledges the record without the change: with `inSyncReplicas=2`
that is enough for the answer.

A slave that acts for its master installs none until the master is back.

A slave installs tables only from a master whose log was compared with its own:

- In a session, tables come after the comparison, never before.
- From a master that speaks the two messages, the slave asks for tables (GET_ALL_..., as RocketMQ's slaves do). It asks
  only under three conditions: it is connected to that master's log, the end of its own log was found in the master's,
  and the master's log (GET_BROKER_HA_STATUS) reaches as far as its own. A topic that an operator deletes at such a
  master is deleted at the slave.
- After no response, a refusal, an error, or a shorter log, the slave asks for nothing and keeps what it has.
- A broker that requires a proof never asks for tables: they come in a session or not at all.
"""


def page() -> str:
    """Return the whole text of docs/replication-protocol.md."""
    return _HEAD.format(
        negotiate=int(RequestCode.NEGOTIATE_HA_SESSION),
        text=hello.MAX_TEXT_BYTES,
        envelope=_table(hello.ENVELOPE),
        hello_table=_table(hello.HELLO),
        hello_2_table=_table(hello.HELLO_2),
        max_epochs=MAX_EPOCHS,
        welcome_table=_table(hello.WELCOME),
        proof=hello.PROOF_BYTES,
        hello_dump=_dump(_sample_hello()),
        head=_table(session.HEAD),
        crc_at=session.HEAD.struct.size - 4,
        max_master=session.MAX_BODY_BYTES,
        max_slave=session.MAX_SLAVE_BODY_BYTES,
        types="\n".join(_type_row(kind) for kind in FrameType),
        layouts="\n\n".join(_table(layout) for layout in session.LAYOUTS if layout is not session.HEAD),
        max_range=_common.MAX_RANGE_BYTES,
        max_search=_common.MAX_BYTES,
        autoswitch="\n\n".join(_table(layout) for layout in messages.LAYOUTS),
        epochs=messages.MAX_EPOCHS,
        look=round(LOOK_S * 1000),
        changes=changes_name("consumerOffset"),
        waiting=_queue.MAX_WAITING,
    )


def _type_row(kind: FrameType) -> str:
    offset, body = session.MEANINGS[kind]
    return f"| {int(kind)} | {kind.name} | {offset} | {body} |"


def _table(layout: Layout) -> str:
    rows = [
        f"`{layout.title}`, {layout.struct.size} bytes:",
        "",
        "| At | Type | Name | Meaning |",
        "|---:|---|---|---|",
    ]
    at = 0
    for field in layout.fields:
        rows.append(f"| {at} | {_type(field)} | `{field.name}` | {field.meaning} |")
        at += struct.calcsize(">" + field.code)
    return "\n".join(rows)


def _type(field: Field) -> str:
    found = re.fullmatch(r"(\d+)s", field.code)
    return f"{found[1]} bytes" if found else _TYPES[field.code]


def _sample_hello() -> bytes:
    slave = Credentials(Identity("DefaultCluster", "broker-a", 1, "5ca1ab1e"), lambda size: bytes(range(size)))
    sent = SlaveGreeting(slave).begin()
    # Check that a master accepts the sample.
    master = MasterGreeting(Credentials(Identity("DefaultCluster", "broker-a", 0, ""), bytes), 1)
    master.received(sent)
    assert master.slave == slave.identity
    return sent


def _dump(content: bytes) -> str:
    return "\n".join(f"{at:04x}  {content[at : at + 16].hex(' ')}" for at in range(0, len(content), 16))


if __name__ == "__main__":
    write(page())
