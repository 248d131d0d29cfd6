"""The oracle is the rendering of transformers, on templates that use every feature."""

from __future__ import annotations

import time
from datetime import datetime
from typing import Any

import pytest
from transformers.utils.chat_template_utils import render_jinja_template

from engine.errors import TemplateError, UnsupportedModelError
from engine.gguf.chat_template import ChatTemplate

FAMILY = """\
{%- macro text(content) %}
    {%- if content is string %}{{- content }}
    {%- elif content is iterable and content is not mapping %}
        {%- for part in content %}
            {%- if part.type == 'image' %}{{- raise_exception('No pictures.') }}{% endif %}
            {{- part.text }}
        {%- endfor %}
    {%- endif %}
{%- endmacro %}
{%- if not messages %}{{- raise_exception('No messages.') }}{% endif %}
{%- set thinking = enable_thinking is not defined or enable_thinking %}
{%- set note = {'low': 'Be brief.', 'xhigh': 'Be thorough.'}.get(reasoning_effort or 'xhigh', '') %}
{%- if tools %}
    {{- '<|im_start|>system\\n' }}
    {%- if messages[0].role == 'system' %}
        {{- text(messages[0].content)|trim ~ '\\n\\n' }}
    {%- endif %}
    {{- '<tools>' }}
    {%- for tool in tools %}{{- '\\n' }}{{- tool | tojson }}{% endfor %}
    {{- '\\n</tools><|im_end|>\\n' }}
{%- elif messages[0].role == 'system' or (thinking and note) %}
    {{- '<|im_start|>system\\n' + (note + '\\n' if thinking else '') }}
    {%- if messages[0].role == 'system' %}{{- text(messages[0].content)|trim }}{% endif %}
    {{- '<|im_end|>\\n' }}
{%- endif %}
{%- set ns = namespace(last=-1) %}
{%- for message in messages[::-1] %}
    {%- if message.role == 'user' %}
        {%- set ns.last = messages|length - 1 - loop.index0 %}
        {%- break %}
    {%- endif %}
{%- endfor %}
{%- if ns.last < 0 %}{{- raise_exception('No user query found in messages.') }}{% endif %}
{%- for message in messages %}
    {%- set content = text(message.content)|trim %}
    {%- if message.role == 'system' %}
        {%- if not loop.first %}{{- raise_exception('System message must be first.') }}{% endif %}
        {%- continue %}
    {%- elif message.role == 'user' %}
        {{- '<|im_start|>user\\n' + content + '<|im_end|>\\n' }}
    {%- elif message.role == 'assistant' %}
        {{- '<|im_start|>assistant\\n' }}
        {%- if preserve_thinking is not defined or preserve_thinking or loop.index0 > ns.last %}
            {{- '<think>\\n' + (message.reasoning_content or '')|trim + '\\n</think>\\n\\n' }}
        {%- endif %}
        {%- generation %}{{- content }}{% endgeneration %}
        {%- for call in message.tool_calls or [] %}
            {%- set call = call.function if call.function is defined else call %}
            {{- '\\n<tool_call>\\n<function=' + call.name + '>\\n' }}
            {%- for key, value in call.arguments|items %}
                {{- '<parameter=' + key + '>\\n' }}
                {{- value if value is string else value | tojson }}
                {{- '\\n</parameter>\\n' }}
            {%- endfor %}
            {{- '</function>\\n</tool_call>' }}
        {%- endfor %}
        {{- '<|im_end|>\\n' }}
    {%- elif message.role == 'tool' %}
        {%- if loop.previtem is undefined or loop.previtem.role != 'tool' %}
            {{- '<|im_start|>user' }}
        {%- endif %}
        {{- '\\n<tool_response>\\n' + content + '\\n</tool_response>' }}
        {%- if loop.last or loop.nextitem.role != 'tool' %}{{- '<|im_end|>\\n' }}{% endif %}
    {%- else %}
        {{- raise_exception('Unexpected role ' ~ message.role) }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n<think>\\n' + ('' if thinking else '\\n</think>\\n\\n') }}
{%- endif %}
"""
ARGUMENTS = {"city": "Zürich <b>", "days": [1, {"k": None, "q": '"'}], "ok": True, "x": 1.5}
USER = {"role": "user", "content": " How is <b>the</b> weather & 'sea'? 🌊 "}
CALLING = [
    {"role": "system", "content": "You are kind.\n"},
    USER,
    {
        "role": "assistant",
        "content": "I look.",
        "reasoning_content": "\nHm\n",
        "tool_calls": [
            {"id": "1", "type": "function", "function": {"name": "f", "arguments": ARGUMENTS}},
            {"id": "2", "type": "function", "function": {"name": "g", "arguments": {}}},
        ],
    },
    {"role": "tool", "content": "sun"},
    {"role": "tool", "content": [{"type": "text", "text": "rain"}, {"type": "text", "text": "!"}]},
    {"role": "assistant", "content": "Mixed."},
    {"role": "user", "content": "Thanks"},
]
TOOLS = [
    {"type": "function", "function": {"name": "f", "description": "<é> & 'x'", "parameters": {}}},
    {"type": "function", "function": {"name": "g", "parameters": {"type": "object"}}},
]
FEATURES = [
    "{% for m in messages %}\n  {% if loop.first %}\nfirst\n  {% endif %}\n{{ m.content }}\n"
    "{% endfor %}\n",
    "{{ messages|tojson(indent=2) }}{{ tools|tojson(sort_keys=true) }}{{ '<é>'|tojson }}",
    "{% for m in messages if m.role == 'user' %}{{ loop.index }}/{{ loop.length }}"
    "{% else %}-{% endfor %}",
    "{% for m in messages recursive %}{{ m if m is string else loop(m) }};{% endfor %}",
    "{% set x %}a{{ messages|length }}{% endset %}{{ x }}{% set a, b = (1, 2) %}{{ [a, b, x] }}",
    "{% macro f(a, b='z') %}[{{ a }}{{ b }}{{ caller() if caller else '' }}]{% endmacro %}"
    "{% call f('q') %}in{% endcall %}{{ f(1, b=2) }}",
    "{% filter upper %}abc{{ messages[0].role }}{% endfilter %}"
    "{% with q = 3 %}{{ q }}{% endwith %}",
    "{{ messages|map(attribute='role')|unique|list }}{{ messages|selectattr('role', 'eq', 'user')"
    "|map(attribute='content')|map('trim')|join('|') }}"
    "{{ messages|rejectattr('content')|list|length }}",
    "{{ 'a-b'.split('-')|join(', ') }}{{ 'ab'.replace('a', 'x') }}{{ ' x '.strip() ~ 1 ~ none }}",
    "{{ '%s-%05.1f' % ('a', 2.5) }}{{ '%d%%'|format(5) }}{{ '{:>5}|{a!r}'.format(1, a='b') }}",
    "{{ {'a': 1}|dictsort }}{{ {'a': {'b': 2}}.a.b }}{{ dict(a=1, b=[2]) }}"
    "{{ {'x': 1}.items()|list }}",
    "{{ 'abc'[::-1] }}{{ [1, 2, 3][1:] + [4] }}{{ 'x' * 3 }}{{ 2 ** 10 }}{{ 7 // 2 }}{{ 7 % 4 }}",
    "{{ missing }}{{ missing is defined }}{{ missing or 'd' }}{{ missing|default('e') }}",
    "{{ 'a' in 'cab' }}{{ 1 if false }}{{ messages[0]['role'] }}{{ messages[-1].content|length }}",
    "{% set ns = namespace(self=1) %}{% set ns.n = 2 %}{{ ns.n }}{{ ns.self }}",
    "{% for i in range(5) %}{% if i == 1 %}{% continue %}{% endif %}{% if i == 3 %}{% break %}"
    "{% endif %}{{ i }}{% endfor %}{% block b %}{{ bos_token }}{{ eos_token }}{% endblock %}",
    "{{ 'a b'|title }}{{ '<x>'|e }}{{ ('<' ~ 'y')|safe }}{{ 'l1\nl2'|indent(2) }}{{ 3.7|int }}"
    "{{ '9'|int + 1 }}{{ [3, 1]|sort }}{{ 'abc'|first }}{{ [1, 2]|batch(3, 'f')|list }}",
    "{{ documents is none }}{{ tools is none }}{{ true }}{{ none }}{{ 1.0 }}{{ [true, none] }}\n\n",
    "{%- raw %}{{ raw }}{% endraw %}{# comment #}  {%+ if true %} kept{% endif %}",
]


def oracle(source: str, messages: list[dict[str, Any]], **options: Any) -> str:
    options = {"tools": None, "add_generation_prompt": True, "enable_thinking": True, **options}
    return str(render_jinja_template([messages], chat_template=source, **options)[0][0])


@pytest.mark.parametrize("source", FEATURES)
def test_features_as_transformers_renders_them(source: str) -> None:
    template = ChatTemplate(source, {"bos_token": "<s>", "eos_token": "</s>"})
    tokens = {"bos_token": "<s>", "eos_token": "</s>"}
    # transformers adds a second name for the reasoning to messages that have some.
    messages = [{k: v for k, v in m.items() if k != "reasoning_content"} for m in CALLING]
    for tools in (None, TOOLS):
        expected = oracle(source, messages, tools=tools, **tokens)
        assert template.render(messages, tools) == expected


@pytest.mark.parametrize("tools", [None, [], TOOLS])
@pytest.mark.parametrize("thinking", [True, False])
@pytest.mark.parametrize("effort", [None, "low", "medium", "xhigh"])
@pytest.mark.parametrize("messages", [CALLING, [USER], CALLING[:4]])
@pytest.mark.parametrize("more", [{}, {"preserve_thinking": False}])
def test_a_template_of_the_family_as_transformers_renders_it(
    tools: Any, thinking: bool, effort: str | None, messages: Any, more: dict[str, Any]
) -> None:
    given = {} if effort is None else {"reasoning_effort": effort}
    for prompt in (True, False):
        expected = oracle(
            FAMILY,
            messages,
            tools=tools,
            add_generation_prompt=prompt,
            enable_thinking=thinking,
            **given,
            **more,
        )
        assert expected == ChatTemplate(FAMILY).render(
            messages, tools, prompt, thinking, effort, **more
        )


def test_the_family_by_hand() -> None:
    text = ChatTemplate(FAMILY).render([USER], None, True, False)
    assert text == (
        "<|im_start|>user\nHow is <b>the</b> weather & 'sea'? 🌊<|im_end|>\n"
        "<|im_start|>assistant\n<think>\n\n</think>\n\n"
    )


def test_arguments_as_json_text_and_none_values() -> None:
    function = {"name": "f", "arguments": '{"a": "é", "b": [1]}'}
    messages = [
        USER,
        {"role": "assistant", "content": None, "tool_calls": [{"function": function}]},
    ]
    text = ChatTemplate(FAMILY).render(messages)
    assert "<parameter=a>\né\n</parameter>\n<parameter=b>\n[1]\n</parameter>" in text
    assert "None" not in text
    assert function["arguments"] == '{"a": "é", "b": [1]}'
    show = ChatTemplate("{{ messages[0].tool_calls[0].function.arguments }}")
    for given, shown in (("", "{}"), ("[1]", "[1]"), ("{bad", "{bad")):
        call = {"tool_calls": [{"function": {"arguments": given}}]}
        assert show.render([call]) == shown


def test_the_clock() -> None:
    source = "{{ strftime_now('%Y-%m-%d') }}"
    template = ChatTemplate(source, now=lambda: datetime(2026, 1, 2))
    assert template.render([USER]) == "2026-01-02"
    assert ChatTemplate(source).render([USER]) == oracle(source, [USER])


@pytest.mark.parametrize(
    ("messages", "message"),
    [
        ([], "No messages."),
        ([{"role": "system", "content": "x"}], "No user query found in messages."),
        ([USER, {"role": "system", "content": "x"}], "System message must be first."),
        ([USER, {"role": "owl", "content": "x"}], "Unexpected role owl"),
        ([{"role": "user", "content": [{"type": "image"}]}], "No pictures."),
    ],
)
def test_refusals_carry_the_message_of_the_template(messages: Any, message: str) -> None:
    with pytest.raises(TemplateError) as caught:
        ChatTemplate(FAMILY).render(messages)
    assert caught.value.message == message


def test_a_long_conversation_is_within_the_limits() -> None:
    messages = [USER, {"role": "assistant", "content": "word " * 400}] * 1000
    begin_s = time.process_time()
    assert ChatTemplate(FAMILY).render(messages) == oracle(FAMILY, messages)
    assert time.process_time() - begin_s < 4


METADATA = {
    "tokenizer.ggml.tokens": ["a", "<|endoftext|>", "<|im_start|>", "<|im_end|>"],
    "tokenizer.ggml.eos_token_id": 3,
    "tokenizer.ggml.padding_token_id": 1,
    "tokenizer.ggml.bos_token_id": 99,
}


def test_from_metadata() -> None:
    source = "{{ eos_token }}{{ pad_token }}{{ bos_token }}"
    metadata = {**METADATA, "tokenizer.chat_template": source}
    template = ChatTemplate.from_metadata(metadata)
    assert template.source == source
    assert template.render([USER]) == "<|im_end|><|endoftext|>"


def test_chatml_where_there_is_no_template() -> None:
    template = ChatTemplate.from_metadata(METADATA)
    parts = [{"type": "text", "text": "b"}, {"type": "text", "text": "c"}]
    messages = [{"role": "system", "content": " a\n"}, {"role": "user", "content": parts}]
    text = "<|im_start|>system\n a\n<|im_end|>\n<|im_start|>user\nbc<|im_end|>\n"
    assert template.render(messages, add_generation_prompt=False) == text
    assert template.render(messages) == text + "<|im_start|>assistant\n"
    with pytest.raises(TemplateError, match="no chat template"):
        template.render(messages, TOOLS)


def test_no_template_and_no_chatml() -> None:
    with pytest.raises(UnsupportedModelError, match="no chat template"):
        ChatTemplate.from_metadata({"tokenizer.ggml.tokens": ["a", "<|im_start|>"]})
