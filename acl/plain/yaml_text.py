"""YAML of account files, read as texts, lists and maps, and written.

Imported when there is such a file: a broker without one does not hold the parser.
"""

import yaml

from sprocket.common.errors import ConfigError


class _Loader(yaml.BaseLoader):
    """Loader that makes only texts, lists and maps: a secret key of digits keeps its zeros, and no tag makes an object.

    Aliases are refused: a few lines of them expand beyond the memory.
    """

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        """Compose a node.  Raises YAMLError for an alias."""
        if self.check_event(yaml.AliasEvent):
            raise yaml.YAMLError("aliases (*name) are not allowed here")
        return super().compose_node(parent, index)


def load(name: str, content: bytes) -> object:
    """Read the content of the file `name`.  Raises ConfigError naming the file and the fault."""
    try:
        return yaml.load(content, _Loader)
    except (yaml.YAMLError, RecursionError) as error:
        raise ConfigError(f"{name}: no YAML: {str(error) or type(error).__name__}") from None


def dump(value: object) -> bytes:
    """Write maps, lists, texts, numbers and booleans, maps in their order."""
    return yaml.safe_dump(value, sort_keys=False, allow_unicode=True).encode()
