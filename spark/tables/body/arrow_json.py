"""An Arrow schema inside a JSON file: Arrow's own encoding, as text."""

import base64

import pyarrow as pa


def schema_to_json(schema: pa.Schema) -> dict[str, str]:
    """Return a map that `schema_from_json` reads; only people read its entry `columns`."""
    encoded = base64.b64encode(schema.serialize().to_pybytes()).decode()
    return {"columns": ", ".join(f"{each.name} {each.type}" for each in schema), "arrow": encoded}


def schema_from_json(value: dict[str, str]) -> pa.Schema:
    """Return the schema in a map that `schema_to_json` made.  Raises ValueError, KeyError."""
    return pa.ipc.read_schema(pa.py_buffer(base64.b64decode(value["arrow"])))
