"""Grammars of answers that call tools, in the form that `engine/output_parser.py` reads.

A text stands between its tags as it is. What a schema says more of, beside a choice of texts, is
written as JSON.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from engine.errors import RequestError
from engine.grammars import TOO_DEEP, try_grammar
from engine.output_parser import (
    CALL,
    CALL_END,
    FUNCTION,
    FUNCTION_END,
    PARAMETER,
    PARAMETER_END,
)
from engine.schema_values import target
from engine.schemas import OPTIONS, alone, check_schema

_NAME = re.compile(r"[^<>\s](?:[^<>\n]{0,198}[^<>\s])?")
"""A name that a tag can hold."""
_NOTES = frozenset(
    {
        *("title", "description", "default", "examples", "example", "deprecated"),
        *("readOnly", "writeOnly", "$schema", "$id", "$comment", "$defs", "definitions"),
    }
)
"""Keys of a schema that say nothing of its values."""
_OBJECT = _NOTES | {"type", "properties", "required", "additionalProperties"}
_TEXT = f"""TEXT: (/(?s:.*)/ & ~/(?s:.*)<\\/parameter>(?s:.*)/) "\\n{PARAMETER_END}\\n"
"""
_AFTER = f'"\\n{PARAMETER_END}\\n"'
_REFERENCES = 8


@dataclass(frozen=True, slots=True)
class ToolGrammar:
    """What holds an answer to calls. `written`: the tools with the schemas by which the values of
    such an answer are read."""

    text: str
    written: Sequence[Mapping[str, Any]]


@dataclass(slots=True)
class _Function:
    """One tool's rule, and how its parameters' values are read. `other`: the tag of a parameter
    that its schema does not name, `other_value` what stands in it."""

    rule: str
    other: str = ""
    other_value: str = ""
    read_by: dict[str, Any] = field(default_factory=dict)


def tool_grammar(tools: Sequence[Mapping[str, Any]], *, needed: bool) -> ToolGrammar:
    """An answer of calls of `tools`; not `needed`: of text, too. Tools are in the shape of the
    OpenAI API; of one that is not `strict`, what cannot be held is left out.

    Raises `RequestError` that begins with the place of the tool at fault.
    """
    functions = []
    for number, tool in enumerate(tools):
        try:
            functions.append(_function(json.dumps(tool["function"])))
        except (RequestError, RecursionError) as error:
            why = (
                error.message
                if isinstance(error, RequestError)
                else f"parameters: {TOO_DEEP.message}"
            )
            raise RequestError(f"tools[{number}].function.{why}") from None
    text = _grammar(functions, needed=needed)
    if _fault_of(text):
        for number, one in enumerate(functions):
            if fault := _fault_of(_grammar([one], needed=True)):
                raise RequestError(f"tools[{number}].function.parameters: {fault}")
        raise RequestError(f"tools: {_fault_of(text)}")
    written = [
        {"type": "function", "function": {**tool["function"], "parameters": one.read_by}}
        for tool, one in zip(tools, functions, strict=True)
    ]
    return ToolGrammar(text, written)


def _grammar(functions: Sequence[_Function], *, needed: bool) -> str:
    names = [f"f{number}" for number in range(len(functions))]
    call = f'call: "\\n{FUNCTION}" ({" | ".join(names)}) "{FUNCTION_END}\\n{CALL_END}"'
    if needed:
        start = f'start: /\\n{{0,2}}/ "{CALL}" call ("\\n{CALL}" call)*'
    else:
        end = f"/(?s:.*)/ & ~/(?s:.*){CALL}(?s:.*)/"
        start = f'start: (before call)* END\nbefore[suffix="{CALL}"]: /(?s:.*)/\nEND: {end}'
    text = "\n".join((start, call, *map(_rule, range(len(functions)), functions)))
    return f"{text}\n{_TEXT}" if "TEXT" in text else text


def _rule(number: int, function: _Function) -> str:
    if not function.other:
        return f"f{number}: {function.rule}"
    more = f"(O{number} {function.other_value})*"
    return f"f{number}: {function.rule} {more}\nO{number}: {function.other}"


@lru_cache(64)
def _fault_of(grammar: str) -> str:
    try:
        try_grammar(grammar)
    except RequestError as error:
        return error.message
    return ""


@lru_cache(512)
def _function(text: str) -> _Function:
    """`text`: a function's definition as JSON. Raises `RequestError`."""
    function = json.loads(text)
    name = function["name"]
    if not _NAME.fullmatch(name):
        raise RequestError(f"name: {name[:80]!r} cannot be written in a call")
    found = _Function(_literal(f"{name}>\n"))
    schema = function.get("parameters")
    if schema is None:
        return found
    strict = bool(function.get("strict"))
    try:
        options = OPTIONS if strict else {**OPTIONS, "lenient": True}
        check_schema(json.dumps(schema), options)
        root = _resolved(schema, schema)
        _check_object(root, strict=strict)
        writer = _Writer(schema, root, options)
        found.rule += "".join(f" {part}" for part in writer.parts())
        found.other, found.other_value = writer.other()
        found.read_by = {"properties": writer.read_by}
    except RequestError as error:
        raise RequestError(f"parameters: {error.message}") from None
    return found


_FORMS = {dict: "object", list: "list"}


def _check_object(root: Any, *, strict: bool) -> None:
    kinds = root.get("type", "object") if isinstance(root, dict) else ()
    if "object" not in (kinds if isinstance(kinds, list) else [kinds]):
        raise RequestError("it is not the schema of an object")
    for key, form in (("properties", dict), ("required", list)):
        if not isinstance(root.get(key, form()), form):
            raise RequestError(f"{key}: {json.dumps(root[key])[:80]} is no {_FORMS[form]}")
    unheld = sorted(root.keys() - _OBJECT)
    if strict and unheld:
        raise RequestError(f"a call cannot be held to {', '.join(unheld)} of its object")


class _Writer:
    """Writes the rule of one function's parameters, in the order of its schema."""

    def __init__(self, schema: Any, root: dict[str, Any], options: Any) -> None:
        self._schema, self._options = schema, options
        self._properties: dict[str, Any] = root.get("properties") or {}
        required = root.get("required") or []
        self._required = [name for name in required if isinstance(name, str)]
        self._others = root.get("additionalProperties", "properties" not in root)
        self.read_by: dict[str, Any] = {}

    def parts(self) -> Iterator[str]:
        """The parts of the rule, one for each parameter that has a name."""
        missing = [name for name in self._required if name not in self._properties]
        for name in (*self._properties, *dict.fromkeys(missing)):
            schema = self._properties.get(name, self._others)
            if not _NAME.fullmatch(name):
                raise RequestError(f"the name {name[:80]!r} cannot be written in a call")
            tag = _literal(f"{PARAMETER}{name}>\n")
            part = f"{tag} {self._value(name, schema)}"
            yield part if name in self._required else f"({part})?"

    def other(self) -> tuple[str, str]:
        """The tag of any other parameter and its value."""
        if self._others is False:
            return "", ""
        known = "|".join(re.escape(name).replace("/", "\\/") for name in self.read_by)
        but = f" & ~/{known}/" if known else ""
        value = self._value("", self._others)
        return f'"{PARAMETER}" (/[^<>\\s]{{1,64}}/{but}) ">\\n"', value

    def _value(self, name: str, schema: Any) -> str:
        """A parameter's value and the tag after it."""
        found = _resolved(schema, self._schema)
        if found is False:
            raise RequestError(f"no value fits {name!r}")
        choice = _choice(found)
        if _is_free(found) or choice:
            self.read_by[name] = found
            if not choice:
                return "TEXT"
            return f"({' | '.join(map(_literal, choice))}) {_AFTER}"
        self.read_by[name] = {}
        return f"%json {json.dumps(alone(found, self._schema, self._options))} {_AFTER}"


def _is_free(schema: Any) -> bool:
    """Whether any text, read as the parser does, fits."""
    if schema is True:
        return True
    said = {key: value for key, value in schema.items() if key not in _NOTES}
    if list(said) == ["anyOf"] and isinstance(said["anyOf"], list):
        parts = said["anyOf"]
        bare = all(isinstance(part, dict) and not part.keys() - _NOTES - {"type"} for part in parts)
        said = {"type": [part.get("type") for part in parts]} if bare else said
    kinds = said.get("type", "string")
    kinds = [kinds] if isinstance(kinds, str) else kinds
    return not said.keys() - {"type"} and kinds in (["string"], ["string", "null"])


def _choice(schema: Any) -> list[str]:
    """The texts that `schema` lets one choose from; none where it is something else."""
    if schema is True or schema.keys() - _NOTES - {"type", "enum", "const"}:
        return []
    texts = schema.get("enum", [schema["const"]] if "const" in schema else [])
    kind = schema.get("type", "string")
    if kind != "string" or ("enum" in schema and "const" in schema) or not isinstance(texts, list):
        return []
    held = all(isinstance(text, str) and PARAMETER_END not in text for text in texts)
    return texts if held else []


def _resolved(schema: Any, root: Any) -> Any:
    """`schema`, or what it does nothing but refer to."""
    for _ in range(_REFERENCES):
        if not isinstance(schema, dict) or schema.keys() - _NOTES != {"$ref"}:
            break
        schema = target(root, schema["$ref"])
    if isinstance(schema, bool):
        return schema
    if not isinstance(schema, dict):
        raise RequestError(f"{json.dumps(schema)[:80]} is no schema")
    return schema


def _literal(text: str) -> str:
    """A text in a grammar."""
    return json.dumps(text)
