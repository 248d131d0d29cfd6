"""Faulty and hostile templates: a clear error, no way to Python, no hanging."""

from __future__ import annotations

import time

import jinja2
import pytest

from engine.errors import TemplateError
from engine.gguf.chat_template import ChatTemplate
from engine.gguf.template_limits import Limits

USER = {"role": "user", "content": " How is <b>the</b> weather & 'sea'? 🌊 "}


@pytest.mark.parametrize(
    ("source", "match"),
    [
        ("a\n{% if %}", "line 2"),
        ("{{ x", "line 1"),
        ("{% for %}", "not valid Jinja"),
        ("{{ x | nofilter }}", "nofilter"),
        ("{{ lipsum() }}", "lipsum"),
        ("{{ 1 / 0 }}", "division by zero"),
        ("{{ 'a' + 1 }}", "failed"),
        ("{{ missing.deeper.still }}", "undefined"),
        ("{% include 'x' %}", "failed"),
        ("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "recursion"),
    ],
)
def test_faults_of_the_template(source: str, match: str) -> None:
    with pytest.raises(TemplateError, match=match):
        ChatTemplate(source).render([USER])


def test_values_that_are_not_json() -> None:
    for value in (object(), print, {1, 2}):
        with pytest.raises(TemplateError, match="not JSON"):
            ChatTemplate("{{ messages }}").render([{"role": value}])


@pytest.mark.parametrize(
    "expression",
    [
        "''.__class__",
        "''['__class__']",
        "''|attr('__class__')",
        "messages.append",
        "messages[0].update",
        "messages[0].__init__",
        "range.__name__",
        "namespace.mro",
        "self.__init__",
        "self._TemplateReference__context",
        "cycler.__init__.__globals__",
        "'a'.encode",
        "(messages|map(attribute='__class__')|first)",
    ],
)
def test_no_way_to_python(expression: str) -> None:
    source = "{{ (" + expression + ") is defined }}"
    assert jinja2.Environment().from_string(source).render(messages=[USER]) == "True"
    try:
        shown = ChatTemplate(source).render([USER])
    except TemplateError as error:
        shown = error.message
    assert shown == "False" or "unsafe" in shown


@pytest.mark.parametrize(
    ("source", "match"),
    [
        ("{% set ns = namespace(__call__=1) %}", "__call__"),
        ("{% set ns = namespace() %}{% set ns.__html__ = 1 %}", "__html__"),
        ("{{ messages.append(1) }}", "append"),
        ("{{ ''.__class__.mro() }}", "__class__"),
    ],
)
def test_hooks_and_changes_are_refused(source: str, match: str) -> None:
    with pytest.raises(TemplateError, match=match):
        ChatTemplate(source).render([USER])


DOUBLING = (
    "{%% set ns = namespace(x=%s) %%}{%% for i in range(60) %%}{%% set ns.x = %s %%}{%% endfor %%}"
)


@pytest.mark.parametrize(
    "source",
    [
        "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
        "{% macro f(n) %}{% if n %}{{ f(n - 1) ~ f(n - 1) }}{% endif %}{% endmacro %}{{ f(60) }}",
        "{% for a in range(99999) %}" + "x" * 1000 + "{% endfor %}",
        "{% set x = 'y' * 99999 %}{% for a in range(99999) %}{{ x }}{% endfor %}",
        "{% set l = range(99999)|list %}{% for i in l %}{% set x = l|map('string')|list %}"
        "{% endfor %}",
        "{{ ('a' * 999999)|map('replace', 'a', 'b')|list|length }}",
        DOUBLING % ("'a'", "ns.x ~ ns.x"),
        DOUBLING % ("'a'", "ns.x + ns.x"),
        DOUBLING % ("'a'", "ns.x * 2"),
        DOUBLING % ("'aa'", "[ns.x, ns.x]|join('b')"),
        DOUBLING % ("'aa'", "ns.x.join(ns.x)"),
        DOUBLING % ("'a'", "'%s%s'|format(ns.x, ns.x)"),
        DOUBLING % ("'a'", "'%s%s' % (ns.x, ns.x)"),
        DOUBLING % ("'a'", "'{}{}'.format(ns.x, ns.x)"),
        DOUBLING % ("'aa'", "ns.x|replace('a', ns.x)"),
        DOUBLING % ("'aa'", "ns.x.replace('a', ns.x)"),
        DOUBLING % ("[1]", "ns.x + ns.x"),
        DOUBLING % ("[1]", "[ns.x, ns.x]") + "{{ ns.x }}",
        DOUBLING % ("[1]", "dict(a=ns.x, b=ns.x)") + "{{ ns.x|tojson }}",
        DOUBLING % ("[1]", "{'a': ns.x, 'b': ns.x}") + "{{ ns.x|string }}",
        DOUBLING % ("3", "ns.x * ns.x"),
        "{{ 'a' * 10**9 }}{{ [1] * 10**9 }}",
        "{{ 10 ** 1000000 }}",
        "{{ '%1000000000d' % 1 }}",
        "{{ '%*d' % (10**9, 1) }}",
        "{{ '%0999999999d'|format(1) }}",
        "{{ '{:>1000000000}'.format(1) }}",
        "{{ '{:{}}'.format(1, 10**9) }}",
        "{{ 'a'|center(10**9) }}",
        "{{ 'a'.center(10**9) }}",
        "{{ 'a'.zfill(10**9) }}",
        "{{ '\t'.expandtabs(10**9) }}",
        "{{ 'a\nb'|indent(10**9) }}",
        "{{ [[1]]|tojson(indent=10**9) }}",
        "{{ [1]|batch(10**9, 'x')|list }}",
        "{{ range(10**9) }}",
    ],
)
def test_no_hanging_and_no_explosion(source: str) -> None:
    """At most a second of looping, and a bit for what is under way when it is over."""
    template = ChatTemplate(source, limits=Limits(characters=300_000, seconds=0.3))
    begin_s = time.process_time()
    with pytest.raises(TemplateError):
        template.render([USER])
    assert time.process_time() - begin_s < 3
