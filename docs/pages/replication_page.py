"""Writes docs/replication-protocol.md from the layouts that the code reads and writes with.

Run as ``python -m docs.pages.replication_page <file>`` (`make docs`); a test compares the file with it.
"""

import re
import struct
import sys
from pathlib import Path
from typing import Final

from broker.replication.table_stream import LOOK_S, OFFSET_CHANGES
from ha import common_prefix as _common
from ha import hello, session
from ha import table_queue as _queue
from ha.greeting import Credentials, MasterGreeting, SlaveGreeting
from ha.hello import Identity
from ha.session import Field, FrameType, Layout
from sprocket.remoting.codes import RequestCode

_TYPES: Final = {"B": "u8", "H": "u16", "I": "u32", "q": "i64"}
_HEAD: Final = """\
# The replication protocol

Written by `make docs` from the layouts in the code; do not edit.

A slave connects to its master's `haListenPort`. With Apache RocketMQ on either side both speak its two messages:
slave to master the end of its log (i64), master to slave `fromPhyOffset` (i64), `size` (i32) and so many bytes of the
log, without any as a heartbeat. Two Sprocket brokers speak sessions instead, which this page describes. All integers
are big-endian; u8 to u32 are unsigned, i64 is signed. `haSessionEnable = false` at either end turns sessions off.

## Which of the two

Brokers without access control and without `haSecretFile`, and those with `haAllowPlainPeers`, ask first: the slave
sends request {negotiate} (NEGOTIATE_HA_SESSION: cluster, broker name, broker id, the highest version that it speaks)
to the master's port for clients. A broker of RocketMQ answers REQUEST_CODE_NOT_SUPPORTED: then the two messages are
spoken, byte for byte. A slave that gets no answer, or another refusal, tries again later: a link that fails never
makes a session a plain connection. A slave that knows only `haMasterAddress`, and no name server that tells where its
master answers, speaks the two messages.

A slave with access control or `haSecretFile`, without `haAllowPlainPeers`, asks nothing at the port for clients. It
connects to `haListenPort` and greets. A request at the port for clients would carry a signature, and the address may
come from a name server where anybody can register a broker. See [security.md](security.md#other-brokers).

On the master the first byte of a connection decides: 0x16 begins a TLS handshake, inside of which the same is decided
again; a session's is negative as the first byte of a signed number, and
no plain slave reports a negative offset.

## TLS

The answer to NEGOTIATE_HA_SESSION says with `takesTls` whether the port for slaves takes TLS: it does unless the
master has `tls.server.mode = disabled`. A slave that does not ask speaks TLS if it has `tls.enable`; with
`haAllowCleartext` it tries TLS and clear in turns until the master answers. RocketMQ's port never takes TLS.
Certificates are those of the ports for clients: the
master's `tls.server.*`, the slave's `tls.client.*`.

| Master | Slave | What goes over `haListenPort` |
|---|---|---|
| takes TLS | `tls.enable` (by default where its own `tls.server.mode` is `enforcing`) | TLS |
| takes TLS, `permissive` | no `tls.enable` | clear |
| `enforcing` | no `tls.enable`, or RocketMQ's | refused at the first byte, unless the master has `haAllowCleartext` |
| takes no TLS, or RocketMQ's | `tls.enable` | not followed, unless the slave has `haAllowCleartext` |

## Greeting

The slave sends HELLO, the master WELCOME, the slave PROOF. Each is an envelope, a body, and a CRC-32 (u32) of both.
Texts are a length (u16, at most {text}) and UTF-8.

{envelope}

{hello_table}

Behind the numbers of HELLO: cluster, broker name, id of the store. A slave with a secret that was told the master's
address, and does not have it from `haMasterAddress`, adds that address. The master refuses a HELLO with an address
that is not its own `brokerIP2:haListenPort`: a stranger is passing the greeting on. PROOF is {proof} bytes, zeros
without a secret.

{welcome_table}

Behind the numbers of WELCOME: cluster, broker name, id of the store, the reason of a refusal; then the master's proof,
{proof} bytes, zeros without a secret.

HELLO of the slave 1 of `DefaultCluster/broker-a`:

```
{hello_dump}
```

### Who may

With `haSecretFile` at both ends each proves that it knows the secret, before anything of the log is sent. A proof is
the HMAC-SHA256, keyed with the file's content without white space around it, of a word for the end that proves
(`sprocket-ha-master`, `sprocket-ha-slave`) and of both messages with their nonces, identities and the epoch (the
slave's with the master's proof as well), each preceded by its length (u32). Use 32 random bytes or more: whoever sees a
greeting can try guesses.

Without the file, brokers with access control (`aclEnable`, `authenticationEnabled`) take for secret the HMAC-SHA256,
keyed with the secret key of the account with which they sign, of `sprocket replication 1`, a zero and the account's
name; one that signs nothing takes random bytes, which nobody else knows. So at both ends it has to be the same account.

| Master | Slave | What happens |
|---|---|---|
| no secret | no secret | no authentication; the log says `authentication=False` |
| secret | the same | both prove it |
| secret | another one | refused by both |
| secret | none, or a session's without one | refused with the reason |
| none | secret | refused with the reason |
| secret | plain protocol | refused, unless `haAllowPlainPeers` |
| plain protocol | secret | not followed, unless `haAllowPlainPeers` |

A slave of another cluster or name, or with the master's own id, is refused. A slave counts once: if one with the same
cluster, name and id comes while another is connected, the older connection ends. What follows the greeting is checked
with CRCs and epochs; it is neither signed nor, without TLS, encrypted.

## Frames

{head}

The CRC covers the first {crc_at} bytes of the head and the body. The *epoch* is a number that each start of a master
has anew (the time of the start, ms): a frame of another epoch ends the connection, so a report never acknowledges
what another master has sent. Limits: a body has at most {most} bytes from a master, {most_slave} from a slave,
checked before anything is kept.

| Type | Name | `offset` | Body |
|---:|---|---|---|
{types}

{layouts}

## Finding the common part

The slave sends RANGE, the master STATE. The slave compares the end of the shorter log by checksum, then ranges of twice
the size before it, at most {largest} bytes each and {back} in all, until one is equal; between that and the next it
halves. What is common ends with the last whole record of it.

- Its whole log is the beginning of the master's: RESUME, and the log follows.
- All of the master's log is the beginning of its own: SURPLUS. A SYNC_MASTER whose last run did not end as it should
  takes nothing for at most `haTailRecoveryWait` (sends are answered SERVICE_NOT_AVAILABLE), and fetches that tail with
  FETCH_TAIL and TAIL; then it begins. It waits for one slave: of several that may have more, the first that comes
  decides, and without a secret that may be anybody. With `minInSyncReplicas` of 2 or more a SYNC_MASTER waits, however
  its last run ended, until a slave has all of its log, and consumers see nothing meanwhile. Any other master answers
  CUT.
- A SYNC_MASTER with an empty store fetches all that the slave keeps, then the tables with FETCH_TABLES, GIVEN_TABLE and
  GIVEN_ALL. It does so whether the store is new or its disk was lost; see below.
- They differ: the slave keeps what lies behind the common part in `cut/` of its store, writes down durably that its log
  is to end there, and begins anew; the start cuts log, queues and index (see [format.md](format.md), `truncate`).
- They have nothing in common, an ASYNC_MASTER with a new disk among them, or the slave's place is no longer kept:
  nothing is touched. The slave's log line `ha_diverged` says which store holds data.

With RocketMQ on the other side a log that does not fit ends the connection, with the reason.

## A master with an empty store

A SYNC_MASTER whose log is empty takes no message and answers no question about offsets (SERVICE_NOT_AVAILABLE) until it
knows that no slave holds data:

| What it finds | What it does |
|---|---|
| a slave with data | takes its log and tables, then begins |
| each other member of the group has shown an empty log | begins at once |
| name servers know no other member, none came | begins after `haTailRecoveryWait` |
| name servers know a member that has not come | waits, `event=empty_master_waits` says for which |
| no name server answers | waits |

`haTailRecoveryWait = 0` begins at once and recovers nothing. A slave that speaks the two messages can show that its log
is empty, but cannot give data: the master then waits until that slave is stopped or replaced. An ASYNC_MASTER with an
empty store begins at once. Its slave keeps its log, topics and offsets, follows no further, and says so.

## Tables

The master looks every {look} ms. Of consumer offsets it sends what changed since (`{changes}`, JSON: `topic@group` to
queue id to offset), of other tables all of one whose content changed, as the answer to RocketMQ's GET_ALL_ request has
it. A slave that is new gets all of them. Each TABLE stands behind the log that the master had when it looked; the slave
applies it when it comes, and so has that log. A slave that is far behind gets {waiting} looks, and later everything
anew. Topics do not wait for a look: a table that changed goes, with offset 0, before the next LOG, so a slave that has
a message has its topic. A slave that acts for its master takes none until the master is back.

A slave installs tables only from a master whose log was compared with its own:

- In a session tables come after the comparison, never before.
- From a master that speaks the two messages the slave asks for tables (GET_ALL_..., as RocketMQ's slaves do). It asks
  only while the connection to that master's log stands, the end of its own log was found in the master's log, and the
  master's log (GET_BROKER_HA_STATUS) reaches as far as its own. A topic that an operator deletes at such a master is
  deleted at the slave.
- No answer, a refusal, an error, a shorter log: the slave asks for nothing and keeps what it has.
- A broker that asks for proof asks for no table at all: they come in a session or not.
"""


def page() -> str:
    """The whole text of docs/replication-protocol.md."""
    return _HEAD.format(
        negotiate=int(RequestCode.NEGOTIATE_HA_SESSION),
        text=hello.MOST_TEXT_BYTES,
        envelope=_table(hello.ENVELOPE),
        hello_table=_table(hello.HELLO),
        welcome_table=_table(hello.WELCOME),
        proof=hello.PROOF_BYTES,
        hello_dump=_dump(_sample_hello()),
        head=_table(session.HEAD),
        crc_at=session.HEAD.struct.size - 4,
        most=session.MOST_BODY_BYTES,
        most_slave=session.MOST_SLAVE_BODY_BYTES,
        types="\n".join(_type_row(kind) for kind in FrameType),
        layouts="\n\n".join(_table(layout) for layout in session.LAYOUTS if layout is not session.HEAD),
        largest=_common.LARGEST_BYTES,
        back=_common.MOST_BYTES,
        look=round(LOOK_S * 1000),
        changes=OFFSET_CHANGES,
        waiting=_queue.MOST_WAITING,
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
    # What is shown is what a master takes.
    master = MasterGreeting(Credentials(Identity("DefaultCluster", "broker-a", 0, ""), bytes), 1)
    master.received(sent)
    assert master.slave == slave.identity
    return sent


def _dump(content: bytes) -> str:
    return "\n".join(f"{at:04x}  {content[at : at + 16].hex(' ')}" for at in range(0, len(content), 16))


def main() -> int:
    """Write the page to the file named by the first argument."""
    Path(sys.argv[1]).write_text(page(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
