"""Values as Java prints them."""

from collections.abc import Iterator, Mapping

import msgspec

from sprocket.remoting.bodies.client import MessageQueue


def java_form(value: object) -> str:
    """Return a value as Java prints it; a struct as Guava's `MoreObjects.toStringHelper` does."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, MessageQueue):
        return f"MessageQueue [topic={value.topic}, brokerName={value.broker_name}, queueId={value.queue_id}]"
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key}={java_form(each)}" for key, each in value.items()) + "}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(java_form, value))}]"
    if isinstance(value, msgspec.Struct):
        fields = ", ".join(f"{name}={java_form(each)}" for name, each in java_fields(value))
        return f"{type(value).__name__}{{{fields}}}"
    return str(value)


def java_fields(value: msgspec.Struct) -> Iterator[tuple[str, object]]:
    """Yield RocketMQ's names and the values of a struct's fields, in the order of their declaration."""
    for field in msgspec.structs.fields(type(value)):
        yield field.encode_name, getattr(value, field.name)
