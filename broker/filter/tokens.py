"""Tokens of a SQL92 filter, read one by one.

Source: RocketMQ 5.3.3, `SelectorParser.jj`.
"""

import re
from dataclasses import dataclass
from enum import Enum
from typing import Final

from sprocket.common.errors import RequestError
from sprocket.remoting.codes import ResponseCode

# Longer expressions are refused.  RocketMQ states no limit of its own.
MAX_EXPRESSION_CHARS: Final = 64 * 1024

# If several alternatives match, the longest is first, as in RocketMQ's scanner.
_TOKEN: Final = re.compile(
    r"""
    (?P<skip> [ \t\n\r\f]+ | --[^\n\r]*+(?:\r\n|\n|\r) | /\*[^*]*+\*(?:\*|[^*/][^*]*+\*)*+/ )
  | (?P<double> [0-9]++\.[0-9]*+(?:[eE][+-]?[0-9]+)? | \.[0-9]++(?:[eE][+-]?[0-9]+)? | [0-9]++[eE][+-]?[0-9]+ )
  | (?P<integer> 0 | [1-9][0-9]*+[lL]? )
  | (?P<string> '[^']*(?:''[^']*)*' )
  | (?P<name> [A-Za-z_$][A-Za-z0-9_$]*+ )
  | (?P<sign> <> | >= | <= | [=<>(),+\-] )
    """,
    re.VERBOSE,
)
_KEYWORDS: Final = frozenset(
    {"NOT", "AND", "OR", "BETWEEN", "IN", "TRUE", "FALSE", "NULL", "IS", "CONTAINS", "STARTSWITH", "ENDSWITH"}
)


class TokenType(Enum):
    """Type of a token."""

    KEYWORD = "keyword"  # text in upper case
    NAME = "name"
    STRING = "string"  # text without quotes
    INTEGER = "integer"
    DOUBLE = "double"
    SIGN = "sign"
    END = "end"


@dataclass(frozen=True, slots=True)
class Token:
    """Token; `position` counts characters from 1."""

    type: TokenType
    text: str
    position: int

    def __str__(self) -> str:
        return "the end" if self.type is TokenType.END else repr(self.text[:40])


class InvalidFilter(RequestError):
    """Error: an expression is no filter, or is too large."""

    def __init__(self, cause: str) -> None:
        super().__init__(ResponseCode.SUBSCRIPTION_PARSE_FAILED, cause)


class InvalidExpression(InvalidFilter):
    """Error: the expression is no SQL92 filter; the text has position and cause."""

    def __init__(self, position: int, cause: str) -> None:
        super().__init__(f"invalid SQL92 filter, position {position}: {cause}")
        self.position = position


class Tokens:
    """Tokens of `text`; `next` is the next one.

    After the expression only one token is read, because RocketMQ accepts any text there.  Raises InvalidExpression when
    it reaches text that begins no token.
    """

    def __init__(self, text: str) -> None:
        if len(text) > MAX_EXPRESSION_CHARS:
            raise InvalidExpression(MAX_EXPRESSION_CHARS + 1, f"longer than {MAX_EXPRESSION_CHARS} characters")
        self._text = text
        self._at = 0
        self.next = self._read()

    def take(self) -> Token:
        """Return the next token, and read the one after it."""
        taken = self.next
        self.next = self._read()
        return taken

    def is_keyword(self, *words: str) -> bool:
        """Whether the next token is one of these keywords."""
        return self.next.type is TokenType.KEYWORD and self.next.text in words

    def is_sign(self, *signs: str) -> bool:
        """Whether the next token is one of these signs."""
        return self.next.type is TokenType.SIGN and self.next.text in signs

    def expect(self, token_type: TokenType, text: str | None = None) -> Token:
        """Take the next token, which must be this one.  Raises InvalidExpression."""
        if self.next.type is not token_type or (text is not None and self.next.text != text):
            raise InvalidExpression(self.next.position, f"expected {text or token_type.value}, found {self.next}")
        return self.take()

    def _read(self) -> Token:
        while self._at < len(self._text):
            position = self._at + 1
            found = _TOKEN.match(self._text, self._at)
            if found is None or found.lastgroup is None:
                first = self._text[self._at]
                cause = "the text does not end" if first == "'" else f"nothing begins with {first!r}"
                raise InvalidExpression(position, cause)
            self._at = found.end()
            if found.lastgroup != "skip":
                return _token(found.lastgroup, found.group(), position)
        return Token(TokenType.END, "", len(self._text) + 1)


def _token(group: str, text: str, position: int) -> Token:
    if group == "name" and text.upper() in _KEYWORDS:
        return Token(TokenType.KEYWORD, text.upper(), position)
    if group == "string":
        text = text[1:-1].replace("''", "'")
    return Token(TokenType(group), text, position)
