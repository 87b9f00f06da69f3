"""What Citus refuses in a statement that changes a distributed table.

The rules are those of its planner (multi_router_planner.c: `TargetlistAndFunctionsSupported`,
`ErrorIfOnConflictNotSupported`, `SingleShardUpdateDeleteSupported`), with its messages:

1. functions used in UPDATE queries on distributed tables must not be VOLATILE (in DELETE, too);
2. STABLE functions used in UPDATE queries cannot be called with column references;
3. non-IMMUTABLE functions are not allowed in CASE or COALESCE statements (of SET and WHERE);
4. non-IMMUTABLE functions are not allowed in the RETURNING clause;
5. functions used in the DO UPDATE SET clause, or in the WHERE clause of ON CONFLICT, must be marked
   IMMUTABLE;
6. subqueries are not supported within INSERT queries (INSERT … SELECT is);
7. cannot push down this subquery: a LIMIT in a lateral subquery of an INSERT … SELECT.

The functions of FROM, of the values of an INSERT, and of a SELECT are allowed: they are evaluated
first. A subquery in WHERE is planned by itself.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Literal, TypeAlias

Volatility: TypeAlias = Literal["i", "s", "v"]
Token: TypeAlias = "str | list[Token]"
Tokens: TypeAlias = Sequence[Token]

_IGNORED = re.compile(r"--[^\n]*|'(?:[^']|'')*'|\$\$.*?\$\$|\"[^\"]*\"|::\w+|:\w+")
_TOKEN = re.compile(r"\w+(?:\.\w+)*|[();]")
_CLAUSES = {"set", "from", "where", "returning", "values", "select", "on", "do", "order"}


def refusals(text: str, volatility: Mapping[str, Volatility]) -> list[str]:
    """What Citus would say about the statements of a text, one sentence for each fault."""
    return [
        fault
        for level in _levels(_tree(text))
        for statement in _changes(level)
        for fault in _faults(statement, volatility)
    ]


def functions_in(text: str) -> set[str]:
    """The names that are written as a function is called."""
    return {name for level in _levels(_tree(text)) for name, _ in _calls(level)}


def _tree(text: str) -> list[Token]:
    """The words of a text; what is in parentheses is a list of its own."""
    open_lists: list[list[Token]] = [[]]
    for token in _TOKEN.findall(_IGNORED.sub(" ", text)):
        if token == "(":
            inner: list[Token] = []
            open_lists[-1].append(inner)
            open_lists.append(inner)
        elif token == ")":
            open_lists.pop()
        else:
            open_lists[-1].append(token)
    (tree,) = open_lists
    return tree


def _levels(tokens: Tokens) -> Iterator[Tokens]:
    """The list itself, and every list in it."""
    yield tokens
    for token in tokens:
        if isinstance(token, list):
            yield from _levels(token)


def _changes(tokens: Tokens) -> Iterator[Tokens]:
    """The statements of one level that change rows, each to its end."""
    starts = [
        place
        for place, (before, token) in enumerate(pairwise(["", *tokens]))
        if (token in ("insert", "delete") and before != "on")
        or (token == "update" and before not in ("for", "key", "do", "on"))
    ]
    for start in starts:
        rest = tokens[start:]
        yield rest[: rest.index(";")] if ";" in rest else rest


def _faults(statement: Tokens, volatility: Mapping[str, Volatility]) -> Iterator[str]:
    faults = _insert_faults if statement[0] == "insert" else _update_faults
    yield from faults(statement, volatility)
    for clause, tokens in _clauses(statement):
        for name in _mutable(tokens, volatility) if clause == "returning" else ():
            yield f"non-IMMUTABLE functions are not allowed in the RETURNING clause: {name}"


def _insert_faults(statement: Tokens, volatility: Mapping[str, Volatility]) -> Iterator[str]:
    on_conflict = False
    for before, inner in pairwise(statement):
        if before == "lateral" and isinstance(inner, list) and "limit" in inner:
            yield "cannot push down this subquery: it is lateral and has a LIMIT"
    for clause, tokens in _clauses(statement):
        on_conflict = on_conflict or clause == "on"
        if clause == "values" and any(level[:1] == ["select"] for level in _levels(tokens)):
            yield "subqueries are not supported within INSERT queries"
        if on_conflict and clause in {"set", "where"}:
            for name in _mutable(tokens, volatility):
                yield f"functions used in ON CONFLICT must be marked IMMUTABLE: {name}"


def _update_faults(statement: Tokens, volatility: Mapping[str, Volatility]) -> Iterator[str]:
    for name in _mutable(statement, volatility):
        if volatility[name] == "v":
            yield f"functions used in UPDATE queries must not be VOLATILE: {name}"
    for clause, tokens in _clauses(statement):
        for lazy in _lazy(tokens) if clause in {"set", "where"} else ():
            for name in _mutable(lazy, volatility):
                yield f"non-IMMUTABLE functions are not allowed in CASE or COALESCE: {name}"
        for name, arguments in _deep_calls(tokens) if clause in {"set", "where"} else ():
            if volatility.get(name) == "s" and _has_column(arguments):
                yield f"STABLE functions cannot be called with column references: {name}"


def _mutable(tokens: Tokens, volatility: Mapping[str, Volatility]) -> list[str]:
    """The functions that are called at any level and are not IMMUTABLE."""
    names = {name for level in _levels(tokens) for name, _ in _calls(level)}
    return sorted(name for name in names if volatility.get(name, "i") != "i")


def _clauses(statement: Tokens) -> Iterator[tuple[str, Tokens]]:
    """The parts of a statement at its own level, each with the word that begins it."""
    places = [place for place, token in enumerate(statement) if _begins(statement, place, token)]
    for place, end in pairwise([*places, len(statement)]):
        yield str(statement[place]), statement[place + 1 : end]


def _begins(statement: Tokens, place: int, token: Token) -> bool:
    # `is distinct from` begins nothing, and neither does the `on` of a join.
    if token == "from":
        return statement[place - 1] != "distinct"
    if token == "on":
        return statement[place + 1] == "conflict"
    return isinstance(token, str) and token in _CLAUSES


def _calls(level: Tokens) -> Iterator[tuple[str, Tokens]]:
    """The functions that are called at one level, with their arguments."""
    for name, arguments in pairwise(level):
        if isinstance(name, str) and isinstance(arguments, list):
            yield name, arguments


def _outside_subqueries(tokens: Tokens) -> Iterator[Tokens]:
    if tokens[:1] == ["select"]:
        return
    yield tokens
    for token in tokens:
        if isinstance(token, list):
            yield from _outside_subqueries(token)


def _deep_calls(tokens: Tokens) -> Iterator[tuple[str, Tokens]]:
    for level in _outside_subqueries(tokens):
        yield from _calls(level)


def _lazy(tokens: Tokens) -> Iterator[Tokens]:
    """What is in CASE and COALESCE."""
    for level in _outside_subqueries(tokens):
        yield from (arguments for name, arguments in _calls(level) if name == "coalesce")
        for place, token in enumerate(level):
            if token == "case":
                yield level[place : place + list(level[place:]).index("end")]


def _has_column(arguments: Tokens) -> bool:
    return any(
        isinstance(token, str) and "." in token for level in _levels(arguments) for token in level
    )
