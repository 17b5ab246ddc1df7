"""``match`` as ``if`` statements on tests that the runtime makes from descriptions of the patterns."""

from __future__ import annotations

import ast
from collections.abc import Callable

from futurex.frontend.rewrite.syntax import Ready, assign, fx, load, place_missing


def match_as_ifs(node: ast.Match, fresh: Callable[[str], str]) -> list[ast.stmt]:
    """The cases one inside the ``else`` of the other. Names are bound before the guard, as Python does."""
    subject = fresh("subject")
    chain: list[ast.stmt] = []
    for case in reversed(node.cases):
        found, fits = fresh("found"), fresh("fits")
        names = sorted(
            {
                each.name
                for each in ast.walk(case.pattern)
                if isinstance(each, ast.MatchAs | ast.MatchStar) and each.name
            }
            | {each.rest for each in ast.walk(case.pattern) if isinstance(each, ast.MatchMapping) and each.rest}
        )
        binds: list[ast.stmt] = [assign(name, Ready(fx("matched", load(found), ast.Constant(name)))) for name in names]
        binds.append(assign(fits, case.guard or ast.Constant(True)))
        described = ast.Call(
            Ready(ast.Attribute(load("__fx__"), "match", ast.Load())), [load(subject), _described(case.pattern)], []
        )
        chain = [
            assign(found, described),
            assign(fits, ast.Constant(False)),
            ast.If(Ready(fx("matches", load(found))), binds, []),
            ast.If(load(fits), case.body, chain),
        ]
    out = [assign(subject, node.subject), *chain]
    for statement in out:
        place_missing(ast.copy_location(statement, node), node.lineno, node.col_offset)
    return out


def _described(pattern: ast.pattern) -> ast.expr:
    """A pattern as a tuple: its kind, then its parts; expressions in it are evaluated where it stands."""

    def each(patterns: list[ast.pattern]) -> ast.expr:
        return ast.Tuple([_described(one) for one in patterns], ast.Load())

    def described(kind: str, *parts: ast.expr) -> ast.expr:
        return ast.Tuple([ast.Constant(kind), *parts], ast.Load())

    match pattern:
        case ast.MatchValue(value=value):
            return described("value", value)
        case ast.MatchSingleton(value=value):
            return described("singleton", ast.Constant(value))
        case ast.MatchSequence(patterns=patterns):
            return described("sequence", each(patterns))
        case ast.MatchStar(name=name):
            return described("star", ast.Constant(name))
        case ast.MatchMapping(keys=keys, patterns=patterns, rest=rest):
            return described("mapping", ast.Tuple(keys, ast.Load()), each(patterns), ast.Constant(rest))
        case ast.MatchClass(cls=kind, patterns=patterns, kwd_attrs=names, kwd_patterns=more):
            attributes = ast.Tuple([ast.Constant(name) for name in names], ast.Load())
            return described("class", kind, each(patterns), attributes, each(more))
        case ast.MatchAs(pattern=inner, name=name):
            inside = _described(inner) if inner is not None else ast.Constant(None)
            return described("as", inside, ast.Constant(name))
        case ast.MatchOr(patterns=patterns):
            return described("or", each(patterns))
    raise TypeError(f"an unknown pattern: {ast.dump(pattern)}")
