"""Chat templates of strangers: made to run for ever, to fill memory, or to reach other files."""

NESTED = (
    "{% set ns = namespace(a=[], b=[]) %}{% for i in range(40) %}"
    "{% set ns.a = [ns.a, ns.a] %}{% set ns.b = [ns.b, ns.b] %}{% endfor %}"
)
DOUBLED = (
    "{% set ns = namespace(x=['a' * 4096]) %}{% for i in range(60) %}{% set ns.x = ns.x + ns.x %}"
)
WIDE = "{% set a = range(99999) | list %}"
HOSTILE = {
    **{
        f"nested lists {name}": NESTED + use
        for name, use in {
            "compared": "{{ ns.a == ns.b }}",
            "ordered": "{{ ns.a < ns.b }}",
            "shown": "{{ ns.a }}",
            "as text": "{{ ns.a | string | length }}",
            "as JSON": "{{ ns.a | tojson }}",
            "looked into": "{{ ns.b in [ns.a] }}",
            "sorted": "{{ [ns.a, ns.a] | sort }}",
            "unique": "{{ [ns.a, ns.a] | unique | list }}",
            "grouped": "{{ [ns, ns] | groupby('a') | list }}",
            "summed": "{{ ns.a | sum(start=[]) }}",
            "joined": "{{ ns.a | join }}",
            "printed": "{{ ns.a | pprint }}",
        }.items()
    },
    **{
        f"large lists {name}": WIDE + use
        for name, use in {
            "summed": "{% for i in range(9999) %}{{ a | sum }}{% endfor %}",
            "mapped": "{{ a | map('string') | map('length') | sum }}" * 400,
            "grouped": "{{ a | map('string') | groupby('0') | list | length }}" * 400,
            "multiplied": "{{ (a * 99999) | length }}",
            "sorted": "{{ a | sort(reverse=true) | sort | sort(reverse=true) | length }}" * 900,
            "found in": "{{ a | select('in', a) | list | length }}",
            "batched": "{{ a | batch(1) | list | batch(1) | list | length }}" * 400,
            "kept": "{% set ns = namespace(k=[]) %}{% for i in a %}"
            "{% set ns.k = ns.k + [a | list] %}{% endfor %}",
            "unique": "{{ a | map('string') | unique | list | length }}" * 400,
        }.items()
    },
    "doubled lists": DOUBLED + "{% endfor %}",
    "bytes": "{% set b = ('a' * 9999999).encode() %}{{ (b * 9999) | length }}",
    "bytes joined": "{% set b = ('a' * 9999999).encode() %}{{ b.join([b] * 9999) | length }}",
    "four bytes each": "{% set ns = namespace(k=[]) %}{% for i in range(999) %}"
    "{% set ns.k = ns.k + ['🙂' * 999999] %}{% endfor %}{{ ns.k | length }}",
    "a shifted number": "{{ 2 ** 9999999 * 3 ** 9999999 }}",
    "a number as text": "{{ 10 ** 9999999 }}",
    "filled": "{{ 'a'.zfill(999999999) }}",
    "a range of ranges": "{% for i in range(99999) %}{% for j in range(99999) %}"
    "{% endfor %}{% endfor %}",
    "a macro that calls itself": "{% macro f(x) %}{{ f(x) }}{% endmacro %}{{ f(1) }}",
    "a macro that calls itself twice": "{% macro f(x) %}{% if x %}{{ f(x - 1) }}{{ f(x - 1) }}"
    "{% endif %}{% endmacro %}{{ f(40) }}",
    "a loop that calls itself": "{% for x in [1] recursive %}{{ loop([x]) }}{% endfor %}",
    "deep brackets": "{{ " + "(" * 9000 + "1" + ")" * 9000 + " }}",
    "deep lists": "{{ " + "[" * 9000 + "]" * 9000 + " }}",
    "deep blocks": "{% if 1 %}" * 9000 + "{% endif %}" * 9000,
    "deep nots": "{{ " + "not " * 90000 + "1 }}",
    "long sums": "{{ " + "1 + " * 90000 + "1 }}",
    "a class": "{{ ''.__class__.__mro__[1].__subclasses__() }}",
    "globals": "{{ cycler.__init__.__globals__ }}",
    "an import": "{% import 'os' as os %}{{ os }}",
    "a file": "{% include '/etc/passwd' %}",
    "no template": "{% for %}",
    "no end": "{% for x in messages %}",
    "an unknown filter": "{{ messages | shell }}",
    "an unknown tag": "{% run 'ls' %}",
    "its own refusal": "{{ raise_exception('not \ud800 so') }}",
    "nothing": "{{ messages.nothing.at.all }}",
    "wrapped": "{{ ('a ' * 999999) | wordwrap(1) | wordwrap(1) | length }}" * 90,
    "indented": "{{ ('\n' * 999999) | indent(9999) }}",
    "quoted": "{{ ('<' * 9999999) | urlize | escape | length }}",
    "sliced": "{{ range(99999) | slice(99999) | list | slice(99999) | list | length }}" * 99,
    "titled": "{{ ('a ' * 8000000) | title | title | capitalize | striptags | length }}" * 20,
    "paired": "{{ dict.fromkeys(range(99999), range(99999) | list) | tojson | length }}",
    "items": "{{ dict(a=1).items() | list * 99999999 }}",
    "a large output": "{% for i in range(99999) %}{{ 'a' * 999 }}{% endfor %}",
    "an output of small pieces": "{% for i in range(99999) %}{% for j in range(999) %}a"
    "{% endfor %}{% endfor %}",
    "a block that is kept": "{% set x %}{% for i in range(99999) %}{{ 'a' * 9999 }}{% endfor %}"
    "{% endset %}{{ x | length }}",
    "a filter's block": "{% filter upper %}{% for i in range(99999) %}{{ 'a' * 9999 }}{% endfor %}"
    "{% endfilter %}",
    "a caller that calls itself": "{% macro f() %}{% call f() %}{{ caller() }}{% endcall %}"
    "{% endmacro %}{% call f() %}{{ caller() }}{% endcall %}",
    "a cycler": "{% set c = cycler('a' * 9999999) %}{% set ns = namespace(k=[]) %}"
    "{% for i in range(9999) %}{% set ns.k = ns.k + [c.next() + i | string] %}{% endfor %}"
    "{{ ns.k | length }}",
    "a joiner": "{% set j = joiner('a' * 9999999) %}{% for i in range(9999) %}{{ j() }}"
    "{% endfor %}",
    "dictionaries": "{% set ns = namespace(d={}) %}{% for i in range(60) %}"
    "{% set ns.d = dict(a=ns.d, b=ns.d) %}{% endfor %}{{ ns.d }}",
    "dictionaries compared": "{% set ns = namespace(d={}, e={}) %}{% for i in range(60) %}"
    "{% set ns.d = dict(a=ns.d, b=ns.d) %}{% set ns.e = dict(a=ns.e, b=ns.e) %}{% endfor %}"
    "{{ ns.d == ns.e }}",
    "a format's attributes": "{{ '{0.__class__.__mro__}'.format('a') }}",
    "a map's attributes": "{{ '{a.__init__.__globals__}'.format_map({'a': cycler}) }}",
    "a name in pieces": "{{ ''['__cl' ~ 'ass__']['__mro__'] }}",
    "an attribute by its name": "{{ (cycler | attr('__init__')).__globals__ }}",
    "attributes of all": "{{ [cycler] | map(attribute='__init__.__globals__') | list }}",
    "a frame": "{{ raise_exception.__globals__.__builtins__ }}",
    "another context": "{{ self.__init__.__globals__ }}",
    "a list that changes": "{{ messages.append(messages) }}{{ messages }}",
    "words wrapped": "{{ ('-a' * 999999) | wordwrap(1, break_long_words=true) | length }}" * 90,
    "addresses": "{{ ('http://a.b/(' * 99999) | urlize | length }}" * 900,
    "tags": "{{ ('<' * 999999 ~ '<!--' * 99999) | striptags | length }}" * 900,
    "truncated": "{{ ('a ' * 8000000) | truncate(9, false, '', 0) }}" * 99,
    "split": "{{ ('a ' * 8000000).split() | length }}" * 90,
    "random": "{% for i in range(99999) %}{{ range(99999) | list | random }}{% endfor %}",
    "permuted": "{% set a = range(999) %}{% for i in a %}{% for j in a %}{% for k in a %}"
    "{% endfor %}{% endfor %}{% endfor %}",
    "many outputs": "{{ 1 }}" * 140000 + "{% for i in range(99999) %}{% for j in range(99999) %}"
    "{% endfor %}{% endfor %}",
    "too large a file": " " * (2**20 + 1),
}
