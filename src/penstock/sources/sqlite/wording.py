"""The tokens of SQL: a search in the text is misled by comments and quoted names. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator

_TOKEN = re.compile(
    r"""--[^\n]*|/\*.*?(?:\*/|\Z)|'(?:[^']|'')*'|"(?:[^"]|"")*"|`(?:[^`]|``)*`|\[[^\]]*\]|[\w$]+|\s+|.""", re.DOTALL
)
_LITERAL = re.compile(r"[+-]?\s*(?:\d+(?:\.\d*)?|\.\d+)(?:e[+-]?\d+)?|'(?:[^']|'')*'|x'[0-9a-f]*'|null", re.IGNORECASE)


def folded(name: str) -> str:
    """A name as SQLite compares it: without the case of ASCII letters."""
    return name.encode().lower().decode()


def tokens(sql: str) -> Iterator[str]:
    """All tokens, a comment as one space; joined, they form the same statement."""
    for found in _TOKEN.finditer(sql):
        token = found[0]
        yield " " if token.startswith(("--", "/*")) else token


def words(sql: str) -> list[str]:
    """The tokens without white space."""
    return [token for token in tokens(sql) if not token.isspace()]


def predicate_of(create_index: str) -> str:
    """The condition after WHERE of a CREATE INDEX; empty if there is none."""
    depth, is_indexed, found = 0, False, list(tokens(create_index))
    for i, token in enumerate(found):
        depth += (token == "(") - (token == ")")
        is_indexed = is_indexed or token == ")"
        if is_indexed and depth == 0 and token.lower() == "where":
            return "".join(found[i + 1 :]).strip()
    return ""


def plain(token: str) -> str:
    """The name of a token without its quotes."""
    quote = token[0]
    if quote == "[":
        return token[1:-1]
    return token[1:-1].replace(quote * 2, quote) if quote in '"`' and len(token) > 1 else token


def is_literal(default: str) -> bool:
    """Whether the text of a default is a plain value, the same in every statement and every version of SQLite."""
    return _LITERAL.fullmatch(default.strip()) is not None
