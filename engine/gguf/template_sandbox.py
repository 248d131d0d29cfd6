"""A Jinja environment for templates that come with model files: sandboxed and bounded."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable
from datetime import datetime
from typing import Any, NoReturn

import jinja2
from jinja2 import nodes
from jinja2.exceptions import SecurityError
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Namespace
from jinja2.visitor import NodeTransformer

from engine.errors import TemplateError
from engine.gguf.template_limits import Budget, Limits

# Filters of ours have names that a template cannot write.
_TICK, _CHECK = "strata tick", "strata check"
# Made for HTML pages and debugging, with results of unbounded size.
_NOT_OFFERED = ("pprint", "urlize", "wordwrap", "xmlattr")
_TEXT_METHODS_NOT_OFFERED = frozenset({"encode", "expandtabs", "translate"})


class TemplateEnvironment(ImmutableSandboxedEnvironment):
    """The settings that chat templates are written for (those of transformers): blocks trimmed,
    loop controls, `tojson` without HTML escapes, `raise_exception`, `strftime_now`.

    `now` gives the time for `strftime_now`.
    """

    intercepted_binops = frozenset({"+", "*", "**", "%"})

    def __init__(self, limits: Limits, now: Callable[[], datetime]) -> None:
        super().__init__(
            trim_blocks=True,
            lstrip_blocks=True,
            extensions=[loopcontrols, GenerationTag],
            finalize=_finalize,
        )
        self.limits = limits
        self.context_class = BoundedContext
        for name in _NOT_OFFERED:
            del self.filters[name]
        self.filters = {name: _bounded(name, f, limits) for name, f in self.filters.items()}
        self.filters |= {
            "tojson": _bounded("tojson", _tojson, limits),
            _TICK: _tick,
            _CHECK: limits.check_value,
        }
        del self.globals["lipsum"]
        self.globals |= {
            "dict": _make_dict,
            "namespace": PlainNamespace,
            "raise_exception": _raise_exception,
            "strftime_now": functools.partial(_strftime, now),
        }

    def compile_template(self, source: str) -> jinja2.Template:
        """Raises jinja2.TemplateSyntaxError."""
        return self.from_string(_Bounding().visit(self.parse(source)))

    def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:
        if isinstance(obj, str) and attr in _TEXT_METHODS_NOT_OFFERED:
            return False
        return super().is_safe_attribute(obj, attr, value)

    def call(self, context: Context, obj: Any, /, *args: Any, **kwargs: Any) -> Any:
        _tick(context, None)
        text = getattr(obj, "__self__", None)
        if isinstance(text, str):
            args = self.limits.check_text_call(obj.__name__, text, args)
        return super().call(context, obj, *args, **kwargs)

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        self.limits.check_binop(operator, left, right)
        return super().call_binop(context, operator, left, right)

    def wrap_str_format(self, value: Any) -> Callable[..., str] | None:
        wrapped = super().wrap_str_format(value)
        if wrapped is None:
            return None
        format_text = wrapped

        def bounded(*args: Any, **kwargs: Any) -> str:
            self.limits.check_format(value.__self__, [args, kwargs])
            return format_text(*args, **kwargs)

        return bounded


class BoundedContext(Context):
    """The variables of one rendering, with its budget."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        assert isinstance(self.environment, TemplateEnvironment)
        self.budget = Budget(self.environment.limits)

    def derived(self, locals: dict[str, Any] | None = None) -> Context:
        context = super().derived(locals)
        assert isinstance(context, BoundedContext)
        context.budget = self.budget
        return context


class PlainNamespace(Namespace):
    """`namespace()` without names that Python or Jinja would take for their own hooks."""

    def __init__(*args: Any, **kwargs: Any) -> None:
        self, *rest = args  # `namespace(self=1)` is a template's right.
        attributes = dict(*rest, **kwargs)
        for name in attributes:
            _refuse_hidden(name)
        Namespace.__init__(self, attributes)

    def __setitem__(self, name: str, value: Any) -> None:
        _refuse_hidden(name)
        super().__setitem__(name, value)


class GenerationTag(Extension):
    """`{% generation %}` marks an assistant's text for training; here its body simply counts."""

    tags = frozenset({"generation"})  # type: ignore[assignment]  # a set by annotation only

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


class _Bounding(NodeTransformer):
    """Puts the checks into a parsed template."""

    def visit_For(self, node: nodes.For) -> nodes.For:  # noqa: N802  # Jinja's name
        self.generic_visit(node)
        tick = nodes.ExprStmt(_filtered(nodes.Const(None), _TICK), lineno=node.lineno)
        node.body.insert(0, tick)
        return node

    def visit_TemplateData(self, node: nodes.TemplateData) -> nodes.Const:  # noqa: N802
        """As a constant it goes through `finalize`, which counts it."""
        return nodes.Const(node.data, lineno=node.lineno)

    def visit_Concat(self, node: nodes.Concat) -> nodes.Filter:  # noqa: N802
        self.generic_visit(node)
        node.nodes = [_filtered(part, _CHECK) for part in node.nodes]
        return _filtered(node, _CHECK)

    def visit_List(self, node: nodes.List) -> nodes.Filter:  # noqa: N802
        self.generic_visit(node)
        return _filtered(node, _CHECK)

    def visit_Dict(self, node: nodes.Dict) -> nodes.Filter:  # noqa: N802
        self.generic_visit(node)
        return _filtered(node, _CHECK)

    def visit_Tuple(self, node: nodes.Tuple) -> nodes.Expr:  # noqa: N802
        self.generic_visit(node)
        return _filtered(node, _CHECK) if node.ctx == "load" else node


def _filtered(node: nodes.Expr, name: str) -> nodes.Filter:
    return nodes.Filter(node, name, [], [], None, None, lineno=node.lineno)


@jinja2.pass_context
def _finalize(context: Context, value: Any) -> str:
    assert isinstance(context, BoundedContext)
    text = value if isinstance(value, str) else str(context.budget._limits.check_value(value))
    context.budget._emit(len(text))
    return text


@jinja2.pass_context
def _tick(context: Context, value: Any) -> None:
    assert isinstance(context, BoundedContext)
    context.budget._tick()


def _bounded(name: str, function: Callable[..., Any], limits: Limits) -> Callable[..., Any]:
    """The filter with its arguments, its result and the clock checked."""
    kind = getattr(function, "jinja_pass_arg", None)
    wanted = kind.name if kind else ""

    @jinja2.pass_context
    def checked(context: Context, value: Any, *args: Any, **kwargs: Any) -> Any:
        _tick(context, None)
        limits.check_filter(name, value, (*args, *kwargs.values()))
        if name == "join" and "attribute" not in kwargs and len(args) < 2:
            separator = str(args[0] if args else kwargs.get("d", ""))
            (value,) = limits.check_text_call("join", separator, (value,))
        first = {
            "": (),
            "context": (context,),
            "eval_context": (context.eval_ctx,),
            "environment": (context.environment,),
        }[wanted]
        result = function(*first, value, *args, **kwargs)
        if isinstance(result, str):
            limits.check(len(result))
        return result

    return checked


def _tojson(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    if indent is not None and indent > 16:
        raise TemplateError(f"the chat template indents JSON by {indent}; the limit is 16")
    return json.dumps(
        value,
        ensure_ascii=ensure_ascii,
        indent=indent,
        separators=separators,
        sort_keys=sort_keys,
    )


def _make_dict(*args: Any, **kwargs: Any) -> dict[Any, Any]:
    return dict(*args, **kwargs)


def _raise_exception(message: Any) -> NoReturn:
    raise TemplateError(str(message), hint="The model's chat template refuses these messages.")


def _strftime(now: Callable[[], datetime], format: str) -> str:
    return now().strftime(format)


def _refuse_hidden(name: Any) -> None:
    if isinstance(name, str) and name.startswith("_"):
        raise SecurityError(f"a namespace cannot hold the name {name!r}")
