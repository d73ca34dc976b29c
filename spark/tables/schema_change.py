"""Changes of a table's columns: new fields are added, every other difference is refused by name."""

from collections.abc import Iterator

import pyarrow as pa

from sprocket.common.errors import ConfigError


class SchemaRefused(ConfigError):
    """The declared schema does not match the table's; the text lists the fields."""


def new_columns(table: pa.Schema, declared: pa.Schema) -> list[pa.Field]:
    """Return the fields that the table does not have yet; they are null in existing rows.

    A field of the table that is no longer declared stays, and is null in new rows.  Raises SchemaRefused for a
    field of another type, and for one whose name differs from a column's by case alone.
    """
    have = {each.name: each.type for each in table}
    spelling = {name.lower(): name for name in have}
    refused = []
    added = []
    for each in declared:
        known = spelling.get(each.name.lower())
        if known is None:
            added.append(each)
        elif known != each.name:
            refused.append(f"{each.name!r} is {known!r} in the table")
        elif written_type(each.type, have[known]) is None:
            refused.append(f"{each.name!r} is {have[known]} in the table and declared as {each.type}")
    if refused:
        raise SchemaRefused(
            f"the table's columns cannot be changed like this: {'; '.join(refused)}; "
            "declare a field of another name, or begin another table"
        )
    return added


def written_schema(table: pa.Schema, declared: pa.Schema) -> pa.Schema:
    """Return `declared` with the types of its files: the table's type if that is wider."""
    types = {each.name: each.type for each in table}
    return pa.schema([pa.field(each.name, written_type(each.type, types[each.name]) or each.type) for each in declared])


def written_type(declared: pa.DataType, table: pa.DataType) -> pa.DataType | None:
    """Return the type of a file's column for a declared type, None if the table's does not match.

    Iceberg has no integers of less than 32 bits: they are written with 32.
    """
    if pa.types.is_nested(declared) or pa.types.is_nested(table):
        if _shape(declared) != _shape(table):
            return None
        pairs = [
            (own, written_type(own.type, theirs.type))
            for own, theirs in zip(_children(declared), _children(table), strict=True)
        ]
        if any(kind is None for _, kind in pairs):
            return None
        return _rebuilt(declared, [pa.field(own.name, kind) for own, kind in pairs])
    if _plain(declared) == _plain(table):
        return declared
    if pa.types.is_signed_integer(declared) and table == pa.int32() and declared.bit_width < 32:
        return table
    return None


def member_without_members(field: pa.Field) -> str | None:
    """Return the path of a struct without members in `field`, which Parquet cannot hold; None without one."""
    children = _children(field.type)
    if pa.types.is_struct(field.type) and not children:
        return str(field.name)
    found = (member_without_members(child) for child in children)
    return next((f"{field.name}.{path}" for path in found if path is not None), None)


def _plain(kind: pa.DataType) -> pa.DataType:
    """Return the plain form of a type that Arrow keeps in several layouts."""
    if pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return pa.string()
    if pa.types.is_large_binary(kind) or pa.types.is_binary_view(kind):
        return pa.binary()
    return kind


def _shape(kind: pa.DataType) -> tuple[str, tuple[str, ...]]:
    if pa.types.is_map(kind):
        return "map", ()
    if pa.types.is_struct(kind):
        return "struct", tuple(each.name for each in _children(kind))
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return "list", ()
    return str(kind), ()


def _children(kind: pa.DataType) -> list[pa.Field]:
    return list(_each_child(kind))


def _each_child(kind: pa.DataType) -> Iterator[pa.Field]:
    if pa.types.is_map(kind):
        yield kind.key_field
        yield kind.item_field
    elif pa.types.is_nested(kind):
        yield from (kind.field(index) for index in range(kind.num_fields))


def _rebuilt(kind: pa.DataType, children: list[pa.Field]) -> pa.DataType:
    if pa.types.is_map(kind):
        return pa.map_(children[0].type, children[1].type)
    if pa.types.is_struct(kind):
        return pa.struct(children)
    return pa.list_(children[0].type)
