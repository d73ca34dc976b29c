"""Bugs of the proxy's acknowledgements; see `tests.mutants.definitions`."""

from typing import Final

from tests.mutants.mutant import Mutant

_ACKS: Final = ("tests/proxy/activity/test_ack.py",)

PROXY_MUTANTS: Final = (
    Mutant(
        "failed batch of acks reported as done",
        "proxy/activity/ack.py",
        "            for entry in batch:\n                self._renewal.put_back(entry.held, error)\n"
        "                outcomes[entry.place] = status_of(error)\n",
        "            for entry in batch:\n                self._renewal.put_back(entry.held, error)\n"
        "                outcomes[entry.place] = OK\n",
        "a client believes that messages are acknowledged which come again",
        _ACKS,
    ),
    Mutant(
        "failed ack not renewed any more",
        "proxy/activity/ack.py",
        "        except (Refusal, ClientError) as error:\n            self._renewal.put_back(entry.held, error)\n",
        "        except (Refusal, ClientError) as error:\n",
        "a message whose ack failed is redelivered while its client still works on it",
        _ACKS,
    ),
    Mutant(
        "failed batch of acks not renewed any more",
        "proxy/activity/ack.py",
        "            for entry in batch:\n                self._renewal.put_back(entry.held, error)\n",
        "            for entry in batch:\n",
        "messages whose acks failed are redelivered while their client still works on them",
        _ACKS,
    ),
    Mutant(
        "ordered messages acknowledged as a batch",
        "proxy/activity/ack.py",
        "if len(batch) == 1 or any(entry.receipt.handle.is_ordered or entry.receipt.lite_topic for entry in batch):",
        "if len(batch) == 1:",
        "the queue of a FIFO group stays locked until the invisible time has passed",
        _ACKS,
    ),
    Mutant(
        "renewed receipt without its lite topic",
        "proxy/brokers/receipts.py",
        "return Receipt(handle, self.log_offset, self.lite_topic)",
        "return Receipt(handle, self.log_offset)",
        "an acknowledgement reaches the queue of the parent, and the lite topic stays where it is",
        ("tests/proxy/test_lite_topics.py",),
    ),
    Mutant(
        "expired receipt acknowledged",
        "proxy/activity/ack.py",
        "                if receipt.is_expired(now_ms):\n",
        "                if now_ms < 0:\n",
        "the ack of a message that another client has by now is reported as done",
        _ACKS,
    ),
)
