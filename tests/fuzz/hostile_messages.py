"""Requests of every gRPC method with values that no client of good will sends, the same for the same dice."""

import random
from collections.abc import Mapping, Sequence
from typing import Any, Final

from google.protobuf.descriptor import FieldDescriptor

from sprocket.grpc_wire import messaging_pb2 as wire
from tests.fuzz.hostile_requests import BODIES, NUMBERS, TEXTS

_INTS: Final = (0, 1, -1, 16, 2**31 - 1, -(2**31), 2**31, 2**63 - 1, -(2**63), 1_700_000_000, 253_402_300_800)
# Texts in JSON and Base64 that a part of an id may be.
_TEXTS: Final = (*NUMBERS, *TEXTS, "id~W1tb", "id~WyJcdWQ4MDAiLDEsMV0=", "id~" + "W1tb" * 500, "id~WzFlOTk5LDEsMV0=")
_MAX_DEPTH: Final = 6


class Hostile:
    """Maker of hostile messages; `known` has good texts by a part of the name of the field that they belong to."""

    def __init__(self, known: Mapping[str, Sequence[str]], dice: random.Random) -> None:
        self._known = known
        self._dice = dice

    def message(self, name: str) -> Any:
        """A message of the type `name`: some fields as they should be, some absent, some strange."""
        made = getattr(wire, name)()
        strangeness = self._dice.choice((0.0, 0.02, 0.1, 0.3))
        self._fill(made, "", strangeness, 0)
        return made

    def _fill(self, made: Any, path: str, strangeness: float, depth: int) -> None:
        chosen = [self._dice.choice(one.fields) for one in made.DESCRIPTOR.oneofs]
        for field in made.DESCRIPTOR.fields:
            is_other = field.containing_oneof is not None and field not in chosen
            if is_other or depth > _MAX_DEPTH or self._dice.random() < strangeness:
                continue
            where = f"{path}.{field.name}"
            if field.message_type is not None and field.message_type.GetOptions().map_entry:
                for _ in range(self._dice.choice((0, 1, 3))):
                    getattr(made, field.name)[self._text(where, strangeness)] = self._text(where, strangeness)
            elif field.is_repeated:
                for _ in range(self._dice.choice((0, 1, 1, 3))):
                    self._add(getattr(made, field.name), field, where, strangeness, depth)
            elif field.message_type is not None:
                found = getattr(made, field.name)
                found.SetInParent()
                self._fill(found, where, strangeness, depth + 1)
            else:
                setattr(made, field.name, self._scalar(field, where, strangeness))

    def _add(self, into: Any, field: FieldDescriptor, where: str, strangeness: float, depth: int) -> None:
        if field.message_type is None:
            into.append(self._scalar(field, where, strangeness))
        else:
            self._fill(into.add(), where, strangeness, depth + 1)

    def _scalar(self, field: FieldDescriptor, where: str, strangeness: float) -> Any:
        dice = self._dice
        if field.enum_type is not None:
            return dice.choice([*field.enum_type.values_by_number, 99, -1, 2**31 - 1])
        kind = field.cpp_type
        if kind == FieldDescriptor.CPPTYPE_STRING:
            return dice.choice(BODIES) if field.type == FieldDescriptor.TYPE_BYTES else self._text(where, strangeness)
        if kind == FieldDescriptor.CPPTYPE_BOOL:
            return dice.random() < 0.5
        if kind in (FieldDescriptor.CPPTYPE_FLOAT, FieldDescriptor.CPPTYPE_DOUBLE):
            return dice.choice((0.0, -1.0, 1e300, float("inf"), float("nan")))
        bits = 31 if kind in (FieldDescriptor.CPPTYPE_INT32, FieldDescriptor.CPPTYPE_UINT32) else 63
        low = 0 if kind in (FieldDescriptor.CPPTYPE_UINT32, FieldDescriptor.CPPTYPE_UINT64) else -(2**bits)
        numbers = (0, 1, 5) if dice.random() >= strangeness else _INTS
        return max(low, min(2**bits - 1, dice.choice(numbers)))

    def _text(self, where: str, strangeness: float) -> str:
        if self._dice.random() >= strangeness:
            for part, texts in self._known.items():
                if part in where:
                    return self._dice.choice(texts)
        return self._dice.choice(_TEXTS)
