"""Bugs of brokers whose role changes, and of their leases; see `tests.mutants.definitions`."""

from typing import Final

from tests.mutants.mutant import Mutant

_SWITCH: Final = ("tests/broker/controller/test_role_switch.py",)
_LEASES: Final = ("tests/broker/controller/test_leases.py",)

ROLE_MUTANTS: Final = (
    Mutant(
        "what waits acknowledged without a lease",
        "broker/longpolling/confirm_waits.py",
        "        if not self.may_acknowledge:\n            return LeaseEnded()\n",
        "",
        "two masters acknowledge at a time, and what one of them acknowledged is lost",
        ("tests/broker/longpolling/test_confirm_waits.py", *_LEASES),
    ),
    Mutant(
        "what waits for a topic's file acknowledged without a lease",
        "broker/longpolling/confirm_waits.py",
        "            answer(LeaseEnded() if error is None and not self.may_acknowledge else error, code)\n",
        "            answer(error, code)\n",
        "a lease that ends while a new topic is written to its file counts no more",
        ("tests/broker/longpolling/test_confirm_waits.py", *_LEASES),
    ),
    Mutant(
        "sends accepted without a lease",
        "broker/processor/send.py",
        "        if not self._waits.may_acknowledge:\n",
        "        if False:\n",
        "a master that was replaced goes on to fill a log that will be truncated",
        _LEASES,
    ),
    Mutant(
        "hasty send acknowledged without a lease",
        "broker/processor/send.py",
        "        if any(hasty) and self._waits.may_acknowledge:\n",
        "        if any(hasty):\n",
        "a send that waits for nobody is acknowledged by a master that was replaced",
        _LEASES,
    ),
    Mutant(
        "other writes accepted without a lease",
        "broker/slave/slave_gate.py",
        "        return None if holds_lease() else refusal_of(NoLease())\n",
        "        return None\n",
        "a transaction ends, or a topic is created, where it will be lost",
        _LEASES,
    ),
    Mutant(
        "what may have been done answered as not done",
        "sprocket/common/errors.py",
        "it may have been done, or may be lost; check before you send again",
        "nothing was done, send again",
        "an administration client sends a change again that was made, and a schedule's message is stored twice",
        _LEASES,
    ),
    Mutant(
        "lease kept after the tenure",
        "broker/controller/role_switch.py",
        "        self._lease.given_up()\n",
        "",
        "the last flush of a master that was replaced acknowledges what waits",
        _LEASES,
    ),
    Mutant(
        "master appends on while it is replaced",
        "broker/controller/role_switch.py",
        "        self._fence()\n",
        "",
        "its last messages exist on no other replica",
        _SWITCH,
    ),
    Mutant(
        "epoch not begun",
        "broker/term.py",
        "        if begin is not None:\n",
        "        if False:\n",
        "logs that differ cannot be told apart",
        _SWITCH,
    ),
    Mutant(
        "store kept open although its log is to be truncated",
        "broker/server.py",
        "        self._must_reopen = True  # also if another role comes first\n",
        "",
        "a slave whose log diverged never follows again, and one that leads loses what it acknowledged",
        _SWITCH,
    ),
    Mutant(
        "open store still tells the parts of the last role",
        "store/flush/confirmation.py",
        "        self.on_arrival.clear()\n",
        "",
        "with every change more parts of earlier roles are kept and called",
        _SWITCH,
    ),
    Mutant(
        "connection to name servers closed by a change",
        "broker/term.py",
        "        if stays_registered:\n",
        "        if False:\n",
        "clients find no route to the broker until it has registered again",
        _SWITCH,
    ),
    Mutant(
        "replaced master registers again",
        "broker/out/registration.py",
        "            if self._is_registered and not self._owner.may_repeat:\n",
        "            if False:\n",
        "clients send to a master that acknowledges nothing",
        _SWITCH,
    ),
    Mutant(
        "waiting requests served by the old routes",
        "sprocket/remoting/channel.py",
        "        self._table = table\n        self.proofs.clear()\n        held,",
        "        held,",
        "requests after a change reach the parts of the last role",
        ("tests/remoting/test_changed_table.py",),
    ),
)
