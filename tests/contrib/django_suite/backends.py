"""Backends with what the tests of the dummy and of the immediate backend expect beside the interface."""

from typing import Any

from django.db import transaction

from sprocket.client.connection.event_loop_thread import shared_loop
from sprocket.client.rebalance.start_offset import ConsumeFrom
from sprocket.client.simple_consumer import SimpleConsumer
from sprocket.contrib.django.backend import SprocketBackend
from sprocket.contrib.django.execution import execute
from sprocket.contrib.django.models import TaskRecord

_CONSUMERS: dict[str, SimpleConsumer] = {}


class Kept(SprocketBackend):
    """Backend whose tasks nobody executes, with the extra methods of the dummy backend."""

    def clear(self) -> None:
        TaskRecord.objects.all().delete()

    @property
    def results(self) -> list[Any]:
        return [record.result() for record in TaskRecord.objects.all()]


class Executed(SprocketBackend):
    """Backend whose tasks are executed before `enqueue` returns: popped from the broker, as a worker does."""

    def enqueue(self, task: Any, args: Any, kwargs: Any) -> Any:
        result = super().enqueue(task, args, kwargs)
        if transaction.get_connection().in_atomic_block:
            return result  # it is sent after the commit
        mq, topic = self.open(task.queue_name), self.topic(task.queue_name)
        if topic not in _CONSUMERS:
            topics = [topic, self.later_topic(task.queue_name)]
            _CONSUMERS[topic] = mq.simple_consumer(topic, topics, consume_from=ConsumeFrom.FIRST)
        while not result.is_finished:
            for message in shared_loop.call(_CONSUMERS[topic].receive(1, wait_s=5)):
                execute(self, message.body.decode(), message.reconsume_times, "suite")
                shared_loop.call(_CONSUMERS[topic].ack(message))
            result.refresh()
        return result
