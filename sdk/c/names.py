"""Checks the names of tools in C.

The host would refuse a bad or duplicate name when it loads the component, without the line. The preprocessed source has
the text of every array of `tb_tool`, whatever macros wrote it. A name that is no string literal is left to the host.
"""

import re
from typing import Iterator, NamedTuple

NAME = re.compile(r"[a-zA-Z0-9_-]{1,48}")
TOKEN = re.compile(
    r'^#[^\S\n]*(?:line[^\S\n]+)?(?P<line>\d+)(?:[^\S\n]+"(?P<file>(?:[^"\\\n]|\\.)*)")?[^\n]*$'
    r'|(?P<skipped>^#[^\n]*$|[^\S\n]+)|(?P<newline>\n)|(?P<text>"(?:[^"\\\n]|\\.)*")'
    r"|(?P<other>'(?:[^'\\\n]|\\.)*'|\w+|.)",
    re.MULTILINE,
)
OPENING, CLOSING = ("{", "(", "["), ("}", ")", "]")


class Failed(Exception):
    """A mistake of the author."""


class Token(NamedTuple):
    """A token, and its place in the author's file."""

    text: str
    at: str


def check_names(sources: list[str]) -> None:
    """Raises an error with a line for each bad or duplicate name in preprocessed sources."""
    problems, found = [], {}
    for source in sources:
        for name, at in names(list(tokens(source))):
            if not name:
                problems.append(f"{at}: a tool has no name")
            elif not NAME.fullmatch(name):
                problems.append(f"{at}: the tool `{name}`: its name must be 1 to 48 letters, digits, `_` or `-`")
            elif name in found:
                problems.append(f"{at}: two tools have the name `{name}`, the other at {found[name]}")
            found.setdefault(name, at)
    if problems:
        raise Failed("\n".join(problems))


def tokens(source: str) -> Iterator[Token]:
    """The tokens of a preprocessed source."""
    file, line = "", 1
    for match in TOKEN.finditer(source):
        if match["line"]:
            # The marker names the line that follows its own.
            # clang escapes what is not ASCII, byte by byte.
            named = (match["file"] or "").encode().decode("unicode_escape").encode("latin-1")
            file, line = named.decode(errors="replace") or file, int(match["line"]) - 1
        elif match["newline"]:
            line += 1
        elif not match["skipped"]:
            yield Token(match[0], f"{file}:{line}")


def names(all_tokens: list[Token]) -> Iterator[tuple[str, str]]:
    """The names in arrays of `tb_tool`, and their places."""
    texts = [token.text for token in all_tokens]
    for start, text in enumerate(texts):
        if text == "tb_tool" and texts[start + 2 : start + 3] == ["["]:
            opened = end_of(texts, start + 2) + 1
            if texts[opened : opened + 2] == ["=", "{"]:
                yield from names_of_array(all_tokens, texts, opened + 1)


def names_of_array(all_tokens: list[Token], texts: list[str], start: int) -> Iterator[tuple[str, str]]:
    """The names in the initialiser that begins at `start`."""
    at, end = start + 1, end_of(texts, start)
    while at < end:
        if texts[at] == "{":
            close = end_of(texts, at)
            if (first := name_at(texts, at, close)) is not None:
                parts = []
                for token in all_tokens[first:close]:
                    if not token.text.startswith('"'):
                        break
                    parts.append(token.text[1:-1])
                if parts:
                    yield "".join(parts), all_tokens[first].at
            elif close > at + 1:
                yield "", all_tokens[at].at
            at = close
        at += 1


def name_at(texts: list[str], start: int, end: int) -> int | None:
    """The position of the name in the initialiser of a tool; None if it has none."""
    at = start + 1
    while at < end:
        if texts[at : at + 3] == [".", "name", "="]:
            return at + 3
        at = end_of(texts, at) + 1 if texts[at] in OPENING else at + 1
    return start + 1 if texts[start + 1] != "." else None


def end_of(texts: list[str], start: int) -> int:
    """The position of the bracket that closes the one at `start`."""
    depth = 0
    for at in range(start, len(texts)):
        depth += (texts[at] in OPENING) - (texts[at] in CLOSING)
        if depth == 0:
            return at
    return len(texts)
