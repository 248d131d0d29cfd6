"""Whether any finite value fits a JSON schema. What is not understood here counts as fitting."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any
from urllib.parse import unquote

_MAPS = ("properties", "patternProperties", "$defs", "definitions")
_LISTS = ("anyOf", "oneOf", "allOf", "prefixItems")
_ONES = ("items", "additionalProperties")
_COMPOUND = {"object", "array"}


def subschemas(root: Any) -> Iterator[dict[str, Any]]:
    """Every schema in `root` that is an object, itself first, each once."""
    waiting, seen = [root], set()
    while waiting:
        node = waiting.pop()
        if not isinstance(node, dict) or id(node) in seen:
            continue
        seen.add(id(node))
        yield node
        for key in _MAPS:
            inner = node.get(key)
            waiting += inner.values() if isinstance(inner, dict) else ()
        for key in _LISTS:
            inner = node.get(key)
            waiting += inner if isinstance(inner, list) else ()
        waiting += [node.get(key) for key in _ONES]
        waiting.append(target(root, node.get("$ref")))


def properties_of(node: dict[str, Any]) -> set[str]:
    """The names of the properties of an object's schema."""
    properties = node.get("properties")
    return set(properties) if isinstance(properties, dict) else set()


def has_value(root: Any, nodes: Sequence[dict[str, Any]]) -> bool:
    """False when no finite value fits `root`, whose `subschemas` are `nodes`: everything that it
    requires leads back to itself."""
    known: set[int] = set()
    left = [*reversed(nodes)]
    while True:
        rest = []
        for node in left:
            if _fits(node, root, known):
                known.add(id(node))
            else:
                rest.append(node)
        if len(rest) == len(left):
            return _can(root, known)
        left = [*reversed(rest)]


def _can(schema: Any, known: set[int]) -> bool:
    """Whether a value fits `schema`, as far as is known."""
    return id(schema) in known if isinstance(schema, dict) else schema is not False


def _fits(node: dict[str, Any], root: Any, known: set[int]) -> bool:
    """Whether a value fits `node`, where `known` schemas have one."""
    needed = [target(root, node.get("$ref"))]
    if isinstance(node.get("allOf"), list):
        needed += node["allOf"]
    if not all(_can(schema, known) for schema in needed):
        return False
    for key in ("anyOf", "oneOf"):
        branches = node.get(key)
        if isinstance(branches, list) and not any(_can(branch, known) for branch in branches):
            return False
    types = node.get("type")
    types = [types] if isinstance(types, str) else types
    if "const" in node or "enum" in node or not isinstance(types, list):
        return True
    if not _COMPOUND.issuperset(map(str, types)):
        return True
    found = {"object": _object_fits, "array": _array_fits}
    return any(found[str(type)](node, known) for type in types)


def _object_fits(node: dict[str, Any], known: set[int]) -> bool:
    properties, required = node.get("properties"), node.get("required")
    if not isinstance(properties, dict) or not isinstance(required, list):
        return True
    return all(_can(properties.get(str(name)), known) for name in required)


def _array_fits(node: dict[str, Any], known: set[int]) -> bool:
    least, first = node.get("minItems"), node.get("prefixItems")
    if not isinstance(least, int):
        return True
    first = first if isinstance(first, list) else []
    needed = first[:least] if least <= len(first) else [*first, node.get("items")]
    return all(_can(schema, known) for schema in needed)


def target(root: Any, ref: Any) -> Any:
    """What `#` or `#/a/b` points at; `None`: it is something else, or not there."""
    if not isinstance(ref, str) or not (ref == "#" or ref.startswith("#/")):
        return None
    node = root
    for step in unquote(ref).split("/")[1:]:
        name = step.replace("~1", "/").replace("~0", "~")
        if isinstance(node, list) and name.isdecimal() and int(name) < len(node):
            node = node[int(name)]
        else:
            node = node.get(name) if isinstance(node, dict) else None
    return node


def branching(root: Any, nodes: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The `subschemas` of `root` (`nodes`) with the most alternatives at one place, the most first:
    properties that may be left out, and branches."""
    known: dict[int, int] = {}
    for _ in range(_PASSES):
        for node in reversed(nodes):
            known[id(node)] = min(_MOST, _branches(node, root, known))
    own = [node for node in nodes if node.keys() - {"$ref"} and known[id(node)] >= _MANY]
    return sorted(own, key=lambda node: -known[id(node)])


def _branches(node: dict[str, Any], root: Any, known: dict[int, int]) -> int:
    required = node.get("required")
    needed = set(map(str, required)) if isinstance(required, list) else set()
    inner = [node.get(key) for key in ("anyOf", "oneOf", "allOf")]
    parts = [part for one in inner if isinstance(one, list) for part in one]
    target_of = known.get(id(target(root, node.get("$ref"))), 0)
    return (
        len(properties_of(node) - needed)
        + sum(1 + known.get(id(part), 0) for part in parts)
        + target_of
    )


_MANY = 50
_PASSES = 3
"""Inner schemas first, as a rule; what is not known yet counts as nothing."""
_MOST = 10**12


def least_characters(root: Any, nodes: Sequence[dict[str, Any]]) -> int:
    """Of the `subschemas` of `root` (`nodes`), the one whose values are longest has values of at
    least so many characters; at most 10^12."""
    known: dict[int, int] = {}
    for _ in range(_PASSES):
        for node in reversed(nodes):
            known[id(node)] = min(_MOST, _least(node, root, known))
    return max(known.values(), default=1)


def _least(node: dict[str, Any], root: Any, known: dict[int, int]) -> int:
    def of(schema: Any) -> int:
        return known.get(id(schema), 1) if isinstance(schema, dict) else 1

    least = [1, of(target(root, node.get("$ref")))]
    if isinstance(node.get("allOf"), list):
        least += map(of, node["allOf"])
    for key in ("anyOf", "oneOf"):
        if isinstance(node.get(key), list) and node[key]:
            least.append(min(map(of, node[key])))
    types = node.get("type")
    if types == "string":
        least.append(_count(node, "minLength") + 2)
    elif types == "array":
        first = node.get("prefixItems")
        first = first if isinstance(first, list) else []
        count = _count(node, "minItems")
        sizes = [*map(of, first[:count])]
        least.append(sum(sizes) + (count - len(sizes)) * (1 + of(node.get("items"))) + 1)
    elif types == "object" and isinstance(node.get("required"), list):
        properties = node.get("properties")
        properties = properties if isinstance(properties, dict) else {}
        names = set(map(str, node["required"]))
        least.append(1 + sum(len(name) + 4 + of(properties.get(name)) for name in names))
    return max(least)


def _count(node: dict[str, Any], key: str) -> int:
    count = node.get(key)
    return count if isinstance(count, int) else 0
