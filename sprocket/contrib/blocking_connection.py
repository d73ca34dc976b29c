"""A connection for programs without an event loop, which opens at its first use."""

import os
from collections.abc import Callable
from threading import Lock

from sprocket.client.connect import Connection
from sprocket.client.connection.event_loop_thread import shared_loop
from sprocket.common.clock import SystemClock
from sprocket.contrib.topics import Topics


class BlockingConnection:
    """Connection in the shared event loop thread; all threads, and processes that fork from this one, may use it."""

    def __init__(self, connect: Callable[[], Connection], topic_queue_nums: int) -> None:
        """A topic that is missing gets `topic_queue_nums` queues on all masters."""
        self._connect = connect
        self._topic_queue_nums = topic_queue_nums
        self._lock = Lock()
        self._pid = os.getpid()
        self._mq: Connection | None = None
        self._topics: Topics | None = None

    def open(self, topic: str, max_priority: int | None = None) -> Connection:
        """Connect unless that is done, and return the connection; `topic` exists then, see `Topics.ensure`.

        Raises SprocketError.
        """
        with self._lock:
            if self._pid != os.getpid():
                # A forked process has the parent's objects, but not its thread.
                self._mq, self._pid = None, os.getpid()
            if self._mq is None or self._topics is None:
                shared_loop.acquire()
                self._mq = self._connect()
                self._topics = Topics(self._mq.admin, SystemClock(), queue_nums=self._topic_queue_nums, cluster=None)
                shared_loop.call(self._mq.start())
            shared_loop.call(self._topics.ensure(topic, max_priority))
            return self._mq

    def close(self) -> None:
        """Close the connection."""
        mq, self._mq = self._mq, None
        if mq is not None and self._pid == os.getpid():
            try:
                shared_loop.call(mq.close())
            finally:
                shared_loop.release()
