#!/usr/bin/env python3
"""Makes jinja_cases.json anew: small templates, and what Jinja itself renders for each of them.

    python3 tests/model/chat_template/make_jinja_cases.py     # needs jinja2 (made with 3.1.6)

The environment is set up as transformers does it for chat templates.
"""

import json
import pathlib

import jinja2
import jinja2.ext
import jinja2.sandbox

VARIABLES = {
    "text": "Hello, World",
    "empty": "",
    "korean": "안녕 세계",
    "lines": "one\ntwo\n\nthree",
    "number": 7,
    "real": 2.5,
    "yes": True,
    "no": False,
    "nothing": None,
    "numbers": [3, 1, 2],
    "words": ["pear", "Apple", "fig"],
    "people": [
        {"name": "Ada", "age": 36, "tags": ["x", "y"]},
        {"name": "Bob", "age": 25, "tags": []},
        {"name": "Cyd", "age": 25, "tags": ["x"]},
    ],
    "tool": {
        "type": "function",
        "zeta": 1,
        "alpha": {"b": [1, 2.5, None, True], "a": "<\"é'\\\n\t\u0001>"},
        "empty_list": [],
        "empty_dict": {},
    },
}

TEMPLATES = """
# Printing.
{{ text }}|{{ number }}|{{ real }}|{{ yes }}|{{ no }}|{{ nothing }}|{{ missing }}|
{{ 1.0 }} {{ 1e16 }} {{ 1e-5 }} {{ 0.1 }} {{ 123456789.125 }} {{ 1e100 }} {{ -0.0 }} {{ 1_000 }}
{{ numbers }} {{ people }} {{ tool }}
{{ (1, 2) }} {{ (1,) }} {{ () }} {{ [] }} {{ {} }} {{ {'a': 'b'} }} {{ ["it's", 'q"q', 'both\\'"'] }}
{{ 1, 2 }} {{ 'a' 'b' "c" }}
{{ "tab\\t nl\\n uni\\u00e9 hex\\x41 oct\\101 bad\\q quote\\" back\\\\" }}
{{ ["\\u200b", "\\x07", "é", "\\n"] }}
# Operators.
{{ 7 + 2 }} {{ 7 - 2 }} {{ 7 * 2 }} {{ 7 / 2 }} {{ 7 // 2 }} {{ 7 % 2 }} {{ 7 ** 2 }} {{ 2 ** -1 }} {{ 2 ** 3 ** 2 }}
{{ -7 // 2 }} {{ -7 % 2 }} {{ 7 % -2 }} {{ 7.5 // 2 }} {{ -7.5 % 2 }} {{ 6 / 3 }} {{ 1 + 2.0 }} {{ true + 1 }}
{{ 'a' + 'b' }} {{ 'ab' * 3 }} {{ 3 * 'ab' }} {{ 'ab' * 0 }} {{ [1] + [2] }} {{ [1, 2] * 2 }} {{ (1,) + (2,) }}
{{ 1 ~ 2 ~ 'x' ~ none ~ missing ~ 1.5 ~ [1] }}
{{ -number }} {{ +number }} {{ - -3 }} {{ -1|abs }} {{ 2 - 1|abs }} {{ -real }}
{{ 1 < 2 }} {{ 2 <= 2 }} {{ 1 > 2 }} {{ 2 >= 3 }} {{ 1 == 1.0 }} {{ 1 != 2 }} {{ 1 < 2 < 3 }} {{ 1 < 3 < 2 }} {{ true == 1 }}
{{ 'a' < 'b' }} {{ [1, 2] < [1, 3] }} {{ [1] < [1, 0] }} {{ (1, 2) == (1, 2) }} {{ [1] == (1,) }} {{ {'a': 1} == {'a': 1.0} }}
{{ 'ell' in text }} {{ 'z' not in text }} {{ 1 in numbers }} {{ 'name' in people[0] }} {{ 9 in numbers }} {{ '' in 'a' }} {{ 'x' in missing }}
{{ yes and 'a' }} {{ no or 'b' }} {{ no and missing.x }} {{ not yes }} {{ not not yes }} {{ '' or none or 0 or 'last' }} {{ not 1 == 2 }}
{{ 'a' if yes else 'b' }} {{ 'a' if no else 'b' }}|{{ 'a' if no }}|{{ 1 if no else 2 if no else 3 }}
{{ 'yes' if 'a' in 'abc' and not no else 'no' }} {{ (1 if yes else 2) + 1 }}
{{ missing == missing2 }} {{ missing == none }} {{ none == none }} {{ missing is defined and missing.x }}
{{ 5 % 3 * 2 }} {{ 2 + 3 * 4 - 1 }} {{ (2 + 3) * 4 }} {{ 2 * 3 ~ 4 }} {{ 10 - 3 - 2 }} {{ 100 / 10 / 2 }}
{{ '%s is %d, %.2f, %5s|%-5s|%05d|%x|%r|%%' % ('a', 3, 2.5, 'r', 'l', 42, 255, 'q') }} {{ '%s' % 'x' }} {{ '%(a)s' % {'a': 1} }}
# Access.
{{ people[0].name }} {{ people[-1]['name'] }} {{ people[9] }}|{{ people[0].missing }}|{{ text[0] }} {{ korean[1] }} {{ korean[-1] }} {{ text[99] }}|
{{ numbers[1:] }} {{ numbers[:-1] }} {{ numbers[::-1] }} {{ numbers[::2] }} {{ numbers[5:] }} {{ numbers[-2:2] }} {{ (1, 2, 3)[1:] }}
{{ text[1:4] }} {{ text[:-1] }} {{ text[::-1] }} {{ korean[1:3] }} {{ text[::3] }} {{ text[4:1] }}| {{ text[10:0:-3] }} {{ text[none:3] }}
{{ {'items': 1}['items'] }} {{ {'a': 1}.a }} {{ {'a': {'b': 2}}.a['b'] }} {{ nothing.x }}|{{ none['x'] }}|{{ numbers.0 }} {{ {'a': 1}['get']('a') }}
{{ {'a': 1, 'b': 2, 'a': 3} }} {{ {'k' ~ 1: 2} }}
# Blocks and white space.
{% if yes %}  a  {% endif %}|
{% if yes %}\\n  a\\n{% endif %}\\nb
  {% if yes %}\\n    {{ text }}\\n  {% endif %}\\n  end
a  {%- if yes -%}  b  {%- endif -%}  c
a  {{- text -}}  c
  {%+ if yes +%}\\n  a  {% endif +%}\\n b
{# comment #}\\n  {# another #}\\nx {# c -#}   y   {#- d #} z
{{ text }}\\n{{ text }}\\n\\n
\\n\\n{% set x = 1 %}\\n\\n{{ x }}
{% raw %}{{ not }} {% parsed %}{% endraw %} {%- raw -%}  a  {%- endraw -%}  b
text {% if yes %}x{% endif %}\\n\\t {% if yes %}\\ty{% endif %}
{{ '{{' }} {{ '%}' }} {{ {'a': {'b': 1}}.a.b }}
{% if no %}a{% elif number == 7 %}b{% else %}c{% endif %} {% if no %}a{% elif no %}b{% else %}c{% endif %}
# Loops.
{% for n in numbers %}{{ loop.index }}{{ loop.index0 }}{{ loop.revindex }}{{ loop.revindex0 }}{{ loop.first }}{{ loop.last }}{{ loop.length }}{{ loop.depth }}:{{ n }} {% endfor %}
{% for n in numbers %}{{ loop.previtem }}<{{ n }}>{{ loop.nextitem }} {% endfor %}
{% for n in [] %}x{% else %}none{% endfor %} {% for n in missing %}x{% else %}none{% endfor %} {% for n in numbers %}{% else %}none{% endfor %}
{% for n in numbers if n > 1 %}{{ loop.index }}/{{ loop.length }}={{ n }} {% endfor %} {% for n in numbers if n > 9 %}x{% else %}none{% endfor %}
{% for n in range(10) %}{% if n == 2 %}{% continue %}{% endif %}{% if n == 5 %}{% break %}{% endif %}{{ n }}{% endfor %}
{% for key, value in tool.items() %}{{ key }}={{ value }};{% endfor %}
{% for key in tool %}{{ key }} {% endfor %} {% for c in korean %}{{ c }}.{% endfor %} {% for a, b in [[1, 2], (3, 4)] %}{{ a + b }} {% endfor %}
{% for a in [1, 2] %}{% for b in [1, 2] %}{{ loop.index }}{{ loop.depth }} {% endfor %}{{ loop.index }};{% endfor %}
{% for x in 1, 2 %}{{ x }}{% endfor %} {% for (a, b) in [(1, 2)] %}{{ a }}{{ b }}{% endfor %}
{% for n in numbers %}{{ loop.cycle('odd', 'even') }} {% endfor %}
{% for p in people if p.age == 25 and 'x' in p.tags %}{{ p.name }}{% endfor %}
{% for n in range(3) %}{{ n }}{% endfor %} {{ range(2, 8, 3)|list }} {{ range(3, 0, -1)|list }} {{ range(0)|list }}
# Variables.
{% set x = 1 %}{% for n in numbers %}{% set x = x + n %}{{ x }} {% endfor %}{{ x }}
{% set x = 1 %}{% if yes %}{% set x = 2 %}{% endif %}{{ x }} {% set a, b = 1, 2 %}{{ a }}{{ b }}
{% set ns = namespace(count=0, found=false) %}{% for n in numbers %}{% set ns.count = ns.count + n %}{% endfor %}{{ ns.count }} {{ ns.found }} {{ ns.other }}|
{% set block %}a {{ number }} b{% endset %}[{{ block }}] {% set block | upper | trim %}  x{{ text }} {% endset %}[{{ block }}]
{% with a = 1, b = number %}{{ a }}{{ b }}{% set a = 5 %}{{ a }}{% endwith %}{{ a }}|{% set x = 1 %}{% with %}{% set x = 2 %}{% endwith %}{{ x }}
{% filter upper %}abc {{ text }}{% endfilter %} {% filter replace('a', 'b')|trim %} aaa {% endfilter %}
{% set messages = [1, 2, 3] %}{% set first, rest = messages[0], messages[1:] %}{{ first }} {{ rest }}
{% set d = dict(a=1, b='x') %}{{ d }} {{ dict({'z': 1}, y=2) }} {{ namespace({'a': 1}).a }}
# Macros.
{% macro m(a, b='x', c=none) %}[{{ a }}{{ b }}{{ c }}]{% endmacro %}{{ m(1) }}{{ m(1, 2) }}{{ m(c=3, a=1) }}{{ m() }}
{% macro fact(n) %}{{ n if n < 2 else n * fact(n - 1)|int }}{% endmacro %}{{ fact(5) }}
{% macro v() %}{{ varargs }} {{ kwargs }}{% endmacro %}{{ v(1, 2, a=3) }}
{% macro box(title) %}<{{ title }}:{{ caller('arg') }}>{% endmacro %}{% call(x) box('t') %}body {{ x }}{% endcall %}
{% macro opt() %}{{ caller() if caller else 'none' }}{% endmacro %}{{ opt() }}{% call opt() %}some{% endcall %}
{% set x = 1 %}{% macro show() %}{{ x }}{% endmacro %}{{ show() }}{% set x = 2 %}{{ show() }}{% for x in [3] %}{{ show() }}{% endfor %}
{% macro a() %}{{ b() }}{% endmacro %}{% macro b() %}late{% endmacro %}{{ a() }} {{ a()|upper }} {{ a() ~ '!' }} {{ a() is string }}
{% macro d(a, b=a) %}{{ a }}{{ b }}{% endmacro %}{{ d(1) }}{{ d(1, 2) }}
{% for n in [1, 2] %}{% macro m(x) %}{{ x }}{{ n }}{% endmacro %}{{ m('a') }}{% endfor %}
# Tests.
{{ text is defined }} {{ missing is defined }} {{ missing is undefined }} {{ missing is not defined }} {{ nothing is none }} {{ nothing is not none }}
{{ text is string }} {{ number is string }} {{ tool is mapping }} {{ numbers is mapping }} {{ numbers is sequence }} {{ text is sequence }} {{ tool is sequence }} {{ number is sequence }}
{{ numbers is iterable }} {{ text is iterable }} {{ nothing is iterable }} {{ number is number }} {{ real is number }} {{ yes is number }} {{ text is number }}
{{ yes is boolean }} {{ number is boolean }} {{ number is integer }} {{ yes is integer }} {{ real is float }} {{ yes is true }} {{ 1 is true }} {{ no is false }} {{ nothing is false }}
{{ 4 is even }} {{ 3 is odd }} {{ 9 is divisibleby 3 }} {{ 9 is divisibleby(2) }} {{ 1 is in [1, 2] }} {{ 3 is not in [1, 2] }} {{ 'a' is in 'abc' }}
{{ 1 is eq 1 }} {{ 1 is equalto 2 }} {{ 1 is ne 2 }} {{ 1 is lt 2 }} {{ 1 is ge 2 }} {{ 3 is gt(2) }}
{{ 'ABC' is upper }} {{ 'abc' is lower }} {{ 'aBC' is upper }} {{ none is sameas none }} {{ range is callable }} {{ text is callable }} {{ 'upper' is filter }} {{ 'nope' is test }}
{{ missing is defined or yes is true }} {{ not missing is defined }} {{ 'x' if missing is defined else 'y' }}
# Filters.
{{ '  a b '|trim }}|{{ 'xxaxx'|trim('x') }}|{{ number|trim }} {{ text|length }} {{ korean|length }} {{ numbers|count }} {{ tool|length }} {{ missing|length }}
{{ text|upper }} {{ text|lower }} {{ 'hello wORLD-foo (bar) x.y'|title }} {{ 'hELLO wORLD'|capitalize }} {{ 'éàß ñ'|lower }} {{ 'éà ñ я ω'|upper }} {{ none|upper }} {{ missing|upper }}|
{{ numbers|join }} {{ words|join(', ') }} {{ people|join('-', attribute='name') }} {{ 'abc'|join('.') }} {{ [1, none, 'x']|join('/') }} {{ {'a': 1, 'b': 2}|join(',') }}
{{ missing|default('d') }} {{ missing|default }}| {{ ''|default('d') }}| {{ ''|default('d', true) }} {{ none|default('d') }} {{ none|d('d', boolean=true) }} {{ 0|d(1) }}
{{ numbers|first }} {{ numbers|last }} {{ []|first }}| {{ text|first }} {{ text|last }} {{ {'a': 1}|first }}
{{ 'abc'|list }} {{ (1, 2)|list }} {{ tool|list }} {{ {'a': 1}|items|list }} {{ missing|items|list }} {{ {'b': 1, 'a': 2}.items()|list }}
{{ {'b': 1, 'C': 0, 'a': 2}|dictsort }} {{ {'b': 1, 'a': 2}|dictsort(by='value') }} {{ {'b': 1, 'C': 0, 'a': 2}|dictsort(true) }} {{ {'b': 1, 'a': 2}|dictsort(reverse=true) }}
{{ words|map('upper')|list }} {{ people|map(attribute='name')|list }} {{ people|map(attribute='x', default='?')|list }} {{ words|map('replace', 'p', 'q')|join(' ') }} {{ people|map(attribute='tags.0')|list|length }}
{{ people|selectattr('age', 'equalto', 25)|map(attribute='name')|list }} {{ people|selectattr('tags')|list|length }} {{ people|rejectattr('age', 'gt', 30)|map(attribute='name')|join(',') }} {{ people|rejectattr('tags')|list|length }}
{{ numbers|select('gt', 1)|list }} {{ numbers|reject('gt', 1)|list }} {{ [0, 1, '', 'a', none]|select|list }} {{ [0, 1]|reject|list }} {{ numbers|select('in', [1, 2])|list }} {{ words|select('string')|list|length }}
{{ text|replace('l', 'L') }} {{ text|replace('l', 'L', 1) }} {{ number|replace('7', '8') }} {{ text|replace('o', '') }}
{{ '42'|int }} {{ 'x'|int }} {{ 'x'|int(5) }} {{ '3.9'|int }} {{ 3.9|int }} {{ -3.9|int }} {{ ' 7 '|int }} {{ 'ff'|int(base=16) }} {{ none|int(1) }} {{ true|int }} {{ '+5'|int }} {{ '-5'|int }}
{{ '1.5'|float }} {{ 'x'|float }} {{ 2|float }} {{ 'x'|float(1.5) }} {{ '1e3'|float }}
{{ number|string + 'x' }} {{ none|string }} {{ [1]|string }} {{ text|safe }} {{ '<a href="x">&\\'</a>'|escape }} {{ '<'|e }}
{{ lines|indent }} {{ lines|indent(2, true) }} {{ lines|indent(2, first=true, blank=true) }} {{ lines|indent('> ') }}
{{ [1, 2, 1, 3, 2]|unique|list }} {{ ['a', 'A', 'b']|unique|list }} {{ ['a', 'A']|unique(true)|list }} {{ people|unique(attribute='age')|map(attribute='name')|list }}
{{ numbers|sort }} {{ numbers|sort(reverse=true) }} {{ words|sort }} {{ words|sort(case_sensitive=true) }} {{ people|sort(attribute='age')|map(attribute='name')|list }} {{ people|sort(true, attribute='age')|map(attribute='name')|list }}
{{ numbers|reverse|list }} {{ text|reverse }} {{ korean|reverse }} {{ numbers|sum }} {{ people|sum(attribute='age') }} {{ [[1], [2]]|sum(start=[]) }} {{ [0.5, 1]|sum }}
{{ numbers|min }} {{ numbers|max }} {{ words|min }} {{ words|max }} {{ people|max(attribute='age') }} {{ []|min }}| {{ -5|abs }} {{ -2.5|abs }}
{{ 2.5|round }} {{ 3.5|round }} {{ 2.345|round(2) }} {{ 2.675|round(2) }} {{ 2.5|round(method='ceil') }} {{ 2.5|round(method='floor') }} {{ 42|round }} {{ 1234.5|round(-2) }} {{ 42.55|round(1, 'floor') }}
{{ [1, 2, 3, 4, 5]|batch(2)|list }} {{ [1, 2, 3]|batch(2, 0)|list }} {{ 'a b  c'|wordcount }} {{ '%s-%s'|format('a', 1) }} {{ '%(x)s'|format(x=2) }} {{ tool|attr('x') }}|
{{ '3'|int + 1 }} {{ text|lower|replace('hello', 'bye')|title }} {{ (text|upper)[0:5] }} {{ text|upper == 'HELLO, WORLD' }}
# JSON.
{{ tool|tojson }}
{{ tool|tojson(indent=2) }}
{{ [1, 'é', '\\u2028', '😊', none, true, 1.0, 1e20, {}]|tojson }} {{ []|tojson(indent=4) }} {{ '</script>'|tojson }} {{ '\\x7f\\x1f'|tojson }}
{{ tool|tojson(sort_keys=true) }} {{ {'a': [1, 2]}|tojson(separators=(',', ':')) }} {{ 'é😊'|tojson(ensure_ascii=true) }} {{ (1, 2)|tojson(indent=1) }}
# Methods.
{{ 'a,b,,c'.split(',') }} {{ ' a  b '.split() }} {{ 'a b c d'.split(' ', 2) }} {{ 'a b c d'.rsplit(' ', 1) }} {{ 'a  b  c '.split(none, 1) }} {{ ' a  b  c'.rsplit(maxsplit=1) }} {{ ''.split() }} {{ ''.split(',') }}
{{ 'x</think>y'.split('</think>')[-1] }} {{ '  x '.strip() }}|{{ 'xxaxx'.strip('x') }} {{ '  x '.lstrip() }}|{{ '  x '.rstrip() }}| {{ '\\n\\nx\\n'.strip('\\n') }} {{ '\\u3000x\\u00a0'.strip() }}| {{ 'abcba'.strip('ab') }}
{{ text.startswith('Hell') }} {{ text.endswith(('x', 'ld')) }} {{ text.endswith('x') }} {{ text.upper() }} {{ text.lower() }} {{ "they're bill's".title() }} {{ 'aBC'.capitalize() }}
{{ text.replace('l', 'L') }} {{ text.replace('l', 'L', 1) }} {{ ', '.join(words) }} {{ text.find('o') }} {{ text.rfind('o') }} {{ text.find('z') }} {{ text.count('l') }} {{ korean.find('세') }} {{ '12'.isdigit() }} {{ 'a1'.isdigit() }}
{{ 'AB'.isupper() }} {{ 'ab'.islower() }} {{ '1'.islower() }} {{ 'a\\nb\\r\\nc'.splitlines() }} {{ 'a\\nb'.splitlines(true) }} {{ 'prefix-x'.removeprefix('prefix-') }} {{ 'x.py'.removesuffix('.py') }}
{{ '{} {} {{}}'.format(1, 'a') }} {{ '{0}{1}{0}'.format(1, 2) }} {{ '{a}'.format(a=3) }}
{{ {'a': 1}.get('a') }} {{ {'a': 1}.get('b') }} {{ {'a': 1}.get('b', 2) }} {{ {'a': 1, 'b': 2}.keys()|list }} {{ {'a': 1, 'b': 2}.values()|list }} {{ numbers.index(2) }} {{ [1, 1].count(1) }}
# Errors.
{{ missing.x }}
{{ missing + 'x' }}
{{ 'x' + missing }}
{{ 'x' + 1 }}
{{ none + 'x' }}
{{ [1] + 'x' }}
{{ 1 in 5 }}
{{ 1 < 'a' }}
{{ missing < 1 }}
{{ 1 // 0 }}
{{ 1 % 0 }}
{{ 1.0 / 0 }}
{{ nothing() }}
{{ missing() }}
{{ text.nope() }}
{{ nothing|items|list }}
{{ nothing|length }}
{{ missing|tojson }}
{% for x in nothing %}{% endfor %}
{% for x in 5 %}{% endfor %}
{% for a, b in [1] %}{% endfor %}
{% for a, b in [[1, 2, 3]] %}{% endfor %}
{% set text.x = 1 %}
{{ numbers|join(1)|nope }}
{{ text is nope }}
{{ text|replace('a') }}
{{ text|upper(1, 2) }}
{{ text.split('') }}
{{ words|map('nope')|list }}
{{ people|selectattr('age', 'nope')|list }}
{{ numbers.append(1) }}
{{ tool.update({'a': 1}) }}
{{ raise_exception('no ' ~ text) }}
{{ '%d' % 'x' }}
{{ '%s %s' % 'x' }}
{% macro m(a) %}{% endmacro %}{{ m(1, 2) }}
{% macro m(a) %}{% endmacro %}{{ m(b=1) }}
{{ {'a': 1}|dictsort(by='nope') }}
{{ [1, 'a']|sort }}
{% include 'x' %}
{% break %}
{% if yes %}
{% endif %}
{% for x in y %}
{{ 'abc }}
{{ 1 + }}
{{ (1 }}
{{ 1 ) }}
{{ a b }}
{% nope %}
{# never closed
{% raw %} never closed
{{ text
{% set x %}
{% set = 1 %}
{{ x is }}
{{ x | }}
{{ f(a=1, 2) }}
{{ ? }}
{{ [1, 2 }}
{{ {'a' 1} }}
"""


def environment():
    env = jinja2.sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[jinja2.ext.loopcontrols]
    )

    def raise_exception(message):
        raise jinja2.exceptions.TemplateError(message)

    def tojson(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(
            value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
        )

    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = raise_exception
    return env


def case(env, source):
    try:
        return {"template": source, "expected": env.from_string(source).render(VARIABLES)}
    except Exception as error:  # Whatever Jinja says: the interpreter must refuse, too.
        return {"template": source, "error": f"{type(error).__name__}: {error}"}


def main():
    env = environment()
    sources = [line for line in TEMPLATES.strip().split("\n") if line and not line.startswith("# ")]
    # In the list, \n outside of tags stands for a line end.
    cases = []
    for source in sources:
        outside = "{%" in source or source.endswith("\\n")
        cases.append(case(env, source.replace("\\n", "\n") if outside else source))
    document = {"variables": VARIABLES, "cases": cases}
    path = pathlib.Path(__file__).with_name("jinja_cases.json")
    path.write_text(json.dumps(document, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
    errors = sum("error" in c for c in cases)
    print(f"{path.name}: {len(cases) - errors} rendered, {errors} refused")


if __name__ == "__main__":
    main()
