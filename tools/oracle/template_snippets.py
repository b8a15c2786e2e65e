"""Small templates, one language feature each, rendered by Jinja2 and Nibble alike. Data only.
LOOSE: both must fail or agree, but error words may differ between Python versions.
COMPILE_ERRORS: both refuse. REFUSED: valid Jinja that Nibble refuses by name when loading.
"""

VARIABLES = {
    "messages": [{"role": "user", "content": "Hi <b>"}, {"role": "assistant", "content": "Yo"}],
    "kwargs": {
        "s": "Hello, World", "pad": "  x y  ", "uni": "naïve ΣΑΣ ß 日本", "empty": "", "n": 7,
        "neg": -3,
        "f": 2.5, "big": 1e20, "t": True, "no": False, "nothing": None, "l": [3, 1, 2], "el": [],
        "words": ["b", "A", "c", "a"], "d": {"b": 1, "a": [1, {"x": None}], "items": 5, "C": 2.0},
        "rows": [{"k": "x", "v": 2}, {"k": "y", "v": 1}, {"k": "X", "v": 3}, {"v": 9}],
        "deep": {"a": {"b": [10, {"c": "end"}]}}, "lines": "one\ntwo\n\nthree",
        "html": "<a & 'b' \"c\">",
        "mixed": [1, "a", None, 2.0, [1], {"q": 1}],
    },
}

# Characters that one case mapping or another makes several of.
SPECIAL = " ".join(chr(c) for c in range(0x10000) if not 0xD800 <= c < 0xE000 and
                   max(len(chr(c).upper()), len(chr(c).title()), len(chr(c).lower())) > 1)

SNIPPETS = [
    # Found by mutants that no other snippet saw.
    f"{{{{ '{SPECIAL}'.upper() }}}}", f"{{{{ '{SPECIAL}'.title() }}}}",
    f"{{{{ '{SPECIAL}'.lower() }}}}", f"{{{{ '{SPECIAL}'.swapcase() }}}}",
    "{% set m = html|safe %}{{ m.upper() + html }} {{ m.lower() + html }} {{ m.title() + html }}",
    "{% set m = html|safe %}{{ m.capitalize() + html }} {{ m.swapcase() + html }}",
    "{% set m = html|safe %}{{ m * 2 + html }} {{ m.strip() + html }}",
    "{% set m = html|safe %}{{ m.replace('a', 'b') + html }} {{ m.split()[0] + html }}",
    "{% set m = html|safe %}{{ m|trim + html }} {{ m|title + html }}",
    "{% set m = html|safe %}{{ m|upper + html }} {{ m|replace('a', '<') + html }}",
    "{% macro a(b) %}{{ b }} {{ varargs }}{% endmacro %}{{ a(1, 2, 3) }}{{ a() }}",
    "{{ missing[1:2] }}", "{{ s|truncate(3, leeway=-1) }}", "{{ namespace(a=1) + 1 }}",
    "{{ 1.5 - 0.25 }} {{ f - n }}",
    "{% macro a() %}{{ varargs }}{% endmacro %}{% macro b() %}-{% endmacro %}{{ a(1) }}{{ b(1) }}",
    "{% macro a() %}{{ kwargs }}{% endmacro %}{% macro b() %}-{% endmacro %}{{ b(x=1) }}",
    # Output and literals.
    "{{ s }}", "{{ n }} {{ f }} {{ big }} {{ t }} {{ no }} {{ nothing }} {{ missing }}|",
    "{{ l }} {{ d }}",
    ("{{ 1 }} {{ 1.0 }} {{ 1e3 }} {{ 1_000 }} {{ 0x1F }} {{ 0b101 }} {{ 0o17 }} {{ 1.5e-7 }} {{"
     " 00 }}"),
    "{{ true }} {{ True }} {{ false }} {{ none }} {{ None }}",
    "{{ [] }} {{ {} }} {{ () }} {{ (1,) }}", "{{ 1, 2 }} {{ (1, 'a') }} {{ [1, [2, [3]]] }}",
    "{{ {'a': 1, 2: 'b', 'c': [1,]} }}", "{{ 'a' 'b' \"c\" }}",
    "{{ 'a\\n\\t\\\\\\'\\\"\\x41\\u00e9\\U0001F600\\101\\q' }}", "{{ 'it''s' }}",
    "{{ ['\\'', '\"', '\\'\"', '\\n\\t\\x01é\\u200b'] }}", "{{ '{{' }} {{ '%}' }} {{ \"#}\" }}",
    "{{ {'a': {'b': 1}}['a']['b'] }}", "{{ {'x': 1}.x }}", "{{ 1.5.__class__ is defined }}",
    "{{ mixed }}",
    "{{ -0.0 }} {{ 1e100 }} {{ 1e16 }} {{ 123456789012345680.0 }} {{ 0.0001 }} {{ 0.00001 }}",
    # Arithmetic.
    "{{ 1 + 2 * 3 - 4 }}",
    "{{ 7 / 2 }} {{ 7 // 2 }} {{ -7 // 2 }} {{ 7 % 3 }} {{ -7 % 3 }} {{ 7 % -3 }}",
    "{{ 2 ** 10 }} {{ 2 ** -1 }} {{ 2 ** 3 ** 2 }} {{ -2 ** 2 }}",
    "{{ 7.5 // 2 }} {{ -7.5 % 2 }} {{ 1.0 / 3 }}",
    "{{ 0.1 + 0.2 }} {{ 1 / 3 }} {{ 2 * 0.5 }} {{ 10 / 5 }}",
    "{{ true + true }} {{ +true }} {{ -f }} {{ - n }}",
    "{{ 'a' + 'b' }} {{ 'ab' * 3 }} {{ 3 * 'x' }} {{ 'x' * -1 }}|",
    "{{ [1] + [2] }} {{ [0] * 3 }} {{ (1,) + (2,) }}",
    "{{ 1 ~ 2 }} {{ 'a' ~ none ~ 1.0 ~ missing ~ [1] }}", "{{ 1 + 2 ~ 3 + 4 }}", "{{ 1 ~ 2 * 3 }}",
    "{{ 9007199254740993 }} {{ 9223372036854775807 }} {{ 3000000000 * 3 }}",
    "{{ n|string + 'x' }}", "{{ 's' + missing }}", "{{ missing + 1 }}", "{{ 's' + 1 }}",
    "{{ 1 + 's' }}", "{{ [1] + 's' }}", "{{ none + 1 }}", "{{ {} - 1 }}", "{{ 'a' * 'b' }}",
    "{{ 1 / 0 }}", "{{ -'x' }}", "{{ 'a' - 'b' }}",
    # Comparison and logic.
    ("{{ 1 < 2 }} {{ 2 <= 2 }} {{ 3 > 4 }} {{ 4 >= 4 }} {{ 1 == 1.0 }} {{ 1 != 1 }} {{ true == 1"
     " }}"),
    "{{ 1 < 2 < 3 }} {{ 1 < 3 < 2 }} {{ 1 == 1 != 2 }}",
    "{{ 'a' < 'b' }} {{ 'Z' < 'a' }} {{ 'é' > 'z' }}",
    ("{{ [1, 2] < [1, 3] }} {{ (1,) == (1,) }} {{ [1] == (1,) }} {{ {'a': 1, 'b': 2} == {'b': 2,"
     " 'a': 1} }}"),
    ("{{ 'ell' in s }} {{ 'x' not in s }} {{ 1 in l }} {{ 9 in l }} {{ 'a' in d }} {{ 'z' in"
     " missing }}"),
    "{{ 1 in (1, 2) }} {{ 1.0 in l }} {{ none in mixed }} {{ '' in '' }}",
    "{{ not true }} {{ not not 1 }}",
    "{{ 1 and 2 }} {{ 0 and 2 }} {{ 1 or 2 }} {{ 0 or '' }}| {{ not 0 and 1 or 2 }}",
    "{{ 1 if t else 2 }}", "{{ 1 if no }}|", "{{ 1 if no else 2 if no else 3 }}",
    "{{ (1 if t) is defined }} {{ (1 if no) is defined }}",
    "{{ missing == missing2 }} {{ missing == none }} {{ missing != 1 }}", "{{ 'a' < 1 }}",
    "{{ none < none }}", "{{ 1 in 5 }}", "{{ 1 in 'abc' }}", "{{ [1] in d }}", "{{ missing < 1 }}",
    "{{ l in none }}", "{{ not 'a' == 'b' }} {{ not 1 in l }}",
    "{{ 1 if 2 > 1 and 'a' in s else 0 }}",
    # Attributes, items, slices.
    "{{ d.b }} {{ d['b'] }} {{ d.zzz }}| {{ d['zzz'] }}|", "{{ d['items'] }} {{ d.get('items') }}",
    "{{ deep.a.b[1].c }} {{ deep['a']['b'][0] }} {{ deep.a.b.0 }}",
    "{{ l[0] }} {{ l[-1] }} {{ l[9] }}|", "{{ s[0] }} {{ s[-1] }} {{ uni[2] }} {{ uni[99] }}|",
    "{{ l[1:] }} {{ l[:1] }} {{ l[::-1] }} {{ l[::2] }}",
    ("{{ s[1:4] }} {{ s[:-1] }} {{ s[::-1] }} {{ uni[::-1] }} {{ uni[-3:] }} {{ s[5:2] }}| {{"
     " s[-99:99] }}"),
    "{{ s[::3] }} {{ s[10:1:-2] }} {{ l[5:] }} {{ l[-2:] }} {{ (1,2,3)[1:] }} {{ s[true] }}",
    "{{ messages[0].role }} {{ messages[-1]['content'] }} {{ messages[::-1][0].role }}",
    "{{ missing.foo }}", "{{ d.zzz.foo }}", "{{ none.foo }}|", "{{ none.foo.bar }}",
    "{{ s.foo.bar }}", "{{ l[9].x }}", "{{ n.foo.bar }}", "{{ missing[0] }}", "{{ d[l] }}|",
    "{{ none[0].x }}", "{{ l['x'].y }}", "{{ l[1.5].x }}", "{{ d[none].x }}", "{{ l['a':].x }}",
    "{{ none[::-1].x }}", "{{ l[::0] }}", "{{ d.pop }}|", "{{ d.pop('b') }}", "{{ l.append(4) }}",
    "{{ d.update({}) }}", "{{ s.__class__ }}|", "{{ s.__class__.x }}",
    "{{ d.items is defined }} {{ d.keys is callable }} {{ s.upper is callable }}",
    "{{ d['get']('b') }}",
    # Methods of str.
    "{{ pad.strip() }}| {{ pad.lstrip() }}| {{ pad.rstrip() }}|",
    "{{ 'xxaxx'.strip('x') }} {{ 'abcab'.rstrip('ba') }}",
    "{{ 'éaé'.strip('é') }} {{ '<|a|>'.lstrip('<|') }} {{ 'a'.strip(none) }}",
    "{{ s.split(', ') }} {{ pad.split() }}",
    ("{{ 'a,b,c'.split(',', 1) }} {{ 'a,b,c'.rsplit(',', 1) }} {{ 'a  b c'.split(none, 1) }} {{"
     " ' a b '.rsplit(none, 1) }}"),
    ("{{ 'a,b'.split(sep=',', maxsplit=1) }} {{ ''.split() }} {{ ''.split(',') }} {{"
     " 'abc'.split('bc') }}"),
    "{{ lines.splitlines() }} {{ 'a\\r\\nb\\rc\\x0bd\\u2028e'.splitlines() }}",
    "{{ 'x'.split('') }}",
    ("{{ s.startswith('He') }} {{ s.startswith(('x', 'H')) }} {{ s.endswith('ld') }} {{"
     " s.endswith(('a',)) }}"),
    ("{{ s.startswith('l', 2) }} {{ s.endswith('l', 0, 4) }} {{ s.startswith('') }} {{"
     " 'a'.startswith('', 5) }}"),
    ("{{ s.replace('l', 'L') }} {{ s.replace('l', '', 1) }} {{ 'ab'.replace('', '-') }} {{"
     " 'é'.replace('', '.', 1) }}"),
    ("{{ uni.upper() }} {{ uni.lower() }} {{ uni.title() }} {{ uni.capitalize() }} {{"
     " uni.swapcase() }}"),
    ("{{ \"they're bill's\".title() }} {{ 'ﬁne ΌΣΟΣ.'.lower() }} {{ 'ŉ ǆ ﬁ'.title() }} {{ 'ΑΣ"
     " ΑΣΑ Σ'.lower() }}"),
    ("{{ s.find('o') }} {{ s.find('z') }} {{ s.rfind('o') }} {{ s.index('W') }} {{ s.count('l')"
     " }} {{ uni.find('日') }}"),
    ("{{ s.find('o', 5) }} {{ s.count('l', 0, 4) }} {{ 'aaa'.count('aa') }} {{ 'abc'.count('')"
     " }} {{ s.find('', 99) }}"),
    "{{ s.index('z') }}",
    "{{ ', '.join(words) }} {{ ''.join(['a']) }} {{ '-'.join('abc') }} {{ '-'.join([]) }}|",
    "{{ ','.join(l) }}", "{{ ','.join(5) }}",
    "{{ s.partition(', ') }} {{ s.rpartition('o') }} {{ s.partition('z') }}",
    "{{ s.removeprefix('Hello') }} {{ s.removesuffix('World') }} {{ s.removeprefix('x') }}",
    ("{{ 'a'.center(5) }}|{{ 'ab'.center(5, '*') }}|{{ 'a'.ljust(3) }}|{{ 'a'.rjust(3, '0')"
     " }}|{{ '-5'.zfill(4) }}"),
    ("{{ 'a1'.isalnum() }} {{ 'ab'.isalpha() }} {{ '12'.isdigit() }} {{ '²'.isdigit() }} {{"
     " '²'.isdecimal() }} {{ ' '.isspace() }}"),
    ("{{ 'AB'.isupper() }} {{ 'ab1'.islower() }} {{ 'Ab Cd'.istitle() }} {{ 'é'.isascii() }} {{"
     " ''.isascii() }} {{ ''.isalpha() }}"),
    ("{{ '{} {}'.format(1, 'a') }} {{ '{1}{0}'.format('a', 'b') }} {{ '{x} {{}}'.format(x=2) }}"
     " {{ '{0.b}'.format(d) }}"),
    "{{ '{0[a]}'.format({'a': 3}) }} {{ '{!r} {!s}'.format('q', 'q') }}",
    "{{ '%s-%d-%05.2f' % ('a', 3, 2.5) }}",
    ("{{ '%s' % 5 }} {{ '%5s|%-5s|' % ('a', 'b') }} {{ '%x %X %o' % (255, 255, 8) }} {{ '%%' %"
     " () }} {{ '%r' % 'a' }}"),
    ("{{ '%(a)s' % {'a': 1} }} {{ '%.2s' % 'éàü' }} {{ '%+d % d' % (3, 4) }} {{ '%e %g' % (1.5,"
     " 0.0001) }}"),
    ("{{ '%e %E %f %F' % (1.5, 1.5, 2.5, 2.5) }} {{ '%g %G' % (1e-10, 1e-10) }} {{ '%i %u' % (3,"
     " 4) }}"),
    "{{ '%s' % () }}", "{{ '%d' % 'a' }}", "{{ 'a' % 5 }}", "{{ '{'.format() }}",
    "{{ '{}'.format() }}", "{{ s.nope() }}", "{{ n.upper() }}", "{{ s() }}", "{{ missing() }}",
    "{{ none() }}", "{{ d.b() }}", "{{ s.upper().lower()[0].upper() }}",
    # Methods of containers.
    "{{ d.keys()|list }} {{ d.values()|list }} {{ d.items()|list }}",
    "{{ d.items() }} {{ d.keys() }}", "{{ d.get('b') }} {{ d.get('q') }} {{ d.get('q', 5) }}",
    "{{ l.index(1) }} {{ l.count(3) }}", "{{ l.index(9) }}",
    "{% for k, v in d.items() %}{{ k }}={{ v }};{% endfor %}",
    "{{ (1, 2, 1).count(1) }} {{ d.copy() == d }}", "{{ d.values()[0] }}|",
    "{{ 'b' in d.keys() }} {{ 1 in d.values() }} {{ d.items()|length }}",
    # Filters of text.
    "{{ pad|trim }}| {{ 'xax'|trim('x') }} {{ n|trim }} {{ missing|trim }}|",
    "{{ uni|upper }} {{ s|lower }} {{ n|upper }}",
    "{{ 'hello wORLD-foo (bar) [x'|title }} {{ \"it's ßa\"|title }}",
    "{{ 'hELLO é'|capitalize }} {{ none|capitalize }}",
    "{{ s|replace('l', 'L') }} {{ s|replace('l', 'L', 2) }} {{ 111|replace(1, 2) }}",
    "{{ n|string }} {{ l|string }} {{ s|string }}",
    "{{ html|e }} {{ html|escape|escape }} {{ html|forceescape }} {{ n|e }}",
    "{{ '<' + (html|safe) }} {{ (html|safe) ~ '<' }}",
    "{{ html|safe }} {{ (html|safe) + '&' }} {{ (html|safe)|e }} {{ [html|safe] }}",
    "{{ html|safe|upper }} {{ html|e|length }}", "{{ lines|indent }}",
    "{{ lines|indent(2, true) }}", "{{ lines|indent('> ', blank=true) }}",
    "{{ lines|indent(first=true, width=1) }}", "{{ none|indent }}",
    "{{ 'a'|center(7) }}|{{ 'x y'|center }}|",
    "{{ 'foo bar baz qux'|truncate(9) }} {{ 'foo bar baz qux'|truncate(9, true) }}",
    ("{{ 'foo bar baz qux'|truncate(9, true, '..', 0) }} {{ 'foo bar'|truncate(5) }} {{"
     " 'foobarbazqux'|truncate(6, false, '', 0) }}"),
    "{{ 'a b-c d_e é'|wordcount }}", "{{ '%s %s'|format(1, 'b') }} {{ '%(x)s'|format(x=3) }}",
    "{{ words|join(', ') }} {{ mixed|join('|') }}",
    ("{{ rows|join(',', attribute='v') }} {{ 'abc'|join('-') }} {{ []|join }}| {{ d|join(',') }}"
     " {{ l|join(1) }}"),
    "{{ none|join }}",
    # tojson.
    "{{ d|tojson }} {{ mixed|tojson }}", "{{ d|tojson(indent=2) }}",
    "{{ [[], {}, [1, {'a': []}]]|tojson(indent=1) }}",
    "{{ uni|tojson }} {{ uni|tojson(ensure_ascii=true) }} {{ '😀'|tojson(ensure_ascii=true) }}",
    "{{ d|tojson(sort_keys=true) }}",
    "{{ d|tojson(separators=(',', ':')) }} {{ l|tojson(indent=2, separators=(',', ':')) }}",
    "{{ {1: 2, true: 3, none: 4, 1.5: 5}|tojson }}",
    ("{{ html|tojson }} {{ '\\n\\t\\x01\\x7f\\\\\"/'|tojson }} {{ 1.0|tojson }} {{ big|tojson }}"
     " {{ none|tojson }}"),
    "{{ missing|tojson }}", "{{ {(1,): 2}|tojson }}",
    "{{ (1, 2)|tojson }} {{ range(2)|list|tojson }}", "{{ range(3)|tojson }}",
    "{{ d.items()|tojson }}", "{{ l|tojson(indent='\\t') }}", "{{ l|map('string')|tojson }}",
    # Filters of numbers.
    "{{ -3|abs }} {{ neg|abs }} {{ (-2.5)|abs }} {{ true|abs }}",
    "{{ '12'|int }} {{ 'x'|int }} {{ 'x'|int(5) }} {{ 3.9|int }} {{ '3.9'|int }} {{ none|int }}",
    ("{{ ' 7 '|int }} {{ '1_0'|int }} {{ '-4'|int }} {{ '0x1f'|int(base=16) }} {{ '1f'|int(0,"
     " 16) }} {{ '+5'|int }} {{ ''|int }} {{ true|int }}"),
    ("{{ '1.5'|float }} {{ 'x'|float }} {{ 'x'|float(2.0) }} {{ 3|float }} {{ '1e3'|float }} {{"
     " '.5'|float }} {{ 'inf'|float }} {{ 'nan'|float }}"),
    ("{{ 2.5|round }} {{ 3.5|round }} {{ 2.567|round(2) }} {{ 2.1|round(method='ceil') }} {{"
     " 2.9|round(0, 'floor') }} {{ 5|round }} {{ 2.675|round(2) }}"),
    ("{{ 42.55|round|int }} {{ -0.5|round }} {{ 1234.5|round(1) }} {{ true|round }} {{"
     " 1.25|round(1, 'ceil') }}"),
    ("{{ 1250.0|round(-2) }} {{ 1350.5|round(-2) }} {{ -1236.5|round(-1) }} {{ 4.5|round(-1) }} {{"
     " 1e300|round(-400) }}"),
    "{{ 1.5|round(0, 'x') }}",
    ("{{ l|sum }} {{ rows|sum(attribute='v') }} {{ l|sum(start=10) }} {{ []|sum }} {{ [0.5,"
     " 1]|sum }}"),
    "{{ ['a']|sum }}", "{{ 'x'|abs }}", "{{ missing|int }}", "{{ missing|abs }}",
    "{{ l|int }} {{ l|float(1) }}", "{{ 'x'|round }}",
    # Filters of sequences.
    ("{{ s|length }} {{ l|count }} {{ d|length }} {{ missing|length }} {{ uni|length }} {{"
     " ''|length }}"),
    "{{ n|length }}", "{{ none|length }}", "{{ l|map('string')|length }}",
    ("{{ l|first }} {{ l|last }} {{ s|first }} {{ s|last }} {{ d|first }} {{ d|last }} {{"
     " []|first }}| {{ []|last }}|"),
    "{{ ''|first }}| {{ range(5)|last }} {{ (1, 2)|last }} {{ missing|first }}| {{ uni|last }}",
    "{{ n|first }}", "{{ none|last }}", "{{ l|map('string')|last }}",
    "{{ l|map('string')|first }}",
    "{{ s|list }} {{ d|list }} {{ range(3)|list }} {{ (1, 2)|list }} {{ missing|list }}",
    ("{{ l|reverse|list }} {{ s|reverse }} {{ (1, 2)|reverse|list }} {{ d|reverse|list }} {{"
     " range(3)|reverse|list }} {{ l|map('string')|reverse }}"),
    "{{ n|reverse }}", "{{ l|reverse|length }}",
    ("{{ l|sort }} {{ l|sort(reverse=true) }} {{ words|sort }} {{"
     " words|sort(case_sensitive=true) }}"),
    ("{{ rows[:3]|sort(attribute='v')|map(attribute='k')|list }} {{"
     " rows[:3]|sort(attribute='k,v')|map(attribute='v')|list }}"),
    ("{{ rows[:3]|sort(attribute='k', reverse=true)|map(attribute='v')|list }} {{ 'cab'|sort }}"
     " {{ [[2, 1], [1, 5]]|sort }}"),
    "{{ mixed|sort }}", "{{ rows|sort(attribute='k') }}",
    "{{ [1, 1, 2, 1.0, true]|unique|list }} {{ words|unique|list }} {{ words|unique(true)|list }}",
    "{{ rows[:3]|unique(attribute='k')|map(attribute='v')|list }}", "{{ [[1]]|unique|list }}",
    "{{ l|min }} {{ l|max }} {{ words|min }} {{ words|max(true) }} {{ []|min }}|",
    ("{{ rows|max(attribute='v') }} {{ rows|min(attribute='v') }} {{ words|max }} {{ 'hello'|max"
     " }}"),
    "{{ mixed|min }}", "{{ [1, 'a']|max }}",
    "{{ range(7)|batch(3)|list }} {{ range(7)|batch(3, 'x')|list }} {{ []|batch(2)|list }}",
    "{{ range(7)|slice(3)|list }} {{ range(7)|slice(3, 'x')|list }} {{ range(3)|slice(5)|list }}",
    ("{{ {'b': 1, 'A': 2, 'c': 0}|dictsort }} {{ {'b': 1, 'A': 2}|dictsort(true) }} {{ {'b': 1,"
     " 'a': 2}|dictsort(by='value') }} {{ {'b': 1, 'a': 2}|dictsort(reverse=true) }}"),
    "{{ d|dictsort(by='x') }}",
    ("{{ missing|default('x') }} {{ empty|default('x') }}| {{ empty|default('x', true) }} {{"
     " missing|d }}| {{ none|d('x') }} {{ no|d('x', boolean=true) }}"),
    "{% for k, v in d|items %}{{ k }}:{{ v }} {% endfor %}",
    "{% for k, v in missing|items %}x{% endfor %}|", "{{ 5|items|list }}",
    "{{ (d|items)|list|length }}",
    # map, select, reject.
    ("{{ words|map('upper')|list }} {{ words|map('upper')|join }} {{"
     " l|map('string')|map('length')|list }}"),
    "{{ rows|map(attribute='k')|list|length }} {{ rows|map(attribute='k', default='none')|list }}",
    ("{{ [d]|map(attribute='a.1.x')|list }} {{ [[1, 2], [3, 4]]|map(attribute=1)|list }} {{ [[1,"
     " 2], [3, 4]]|map('first')|list }}"),
    "{{ words|map('replace', 'a', 'z')|list }} {{ words|map('default', 'x')|list }}",
    ("{{ mixed|select|list }} {{ mixed|reject|list }} {{ l|select('odd')|list }} {{"
     " l|reject('odd')|list }} {{ l|select('>', 1)|list }}"),
    ("{% for name in ['==', 'eq', 'equalto', '!=', 'ne', '>', 'gt', 'greaterthan', '>=', 'ge',"
     " '<', 'lt', 'lessthan', '<=', 'le'] %}{{ name }}{{ [1, 2, 3]|select(name, 2)|list }}"
     "{% endfor %}"),
    ("{{ mixed|select('string')|list }} {{ mixed|reject('none')|list }} {{ l|select('in', [1,"
     " 2])|list }}"),
    ("{{ rows|selectattr('k', 'equalto', 'x')|list }} {{ rows|selectattr('k')|list|length }} {{"
     " rows|rejectattr('k', 'defined')|list }} {{ rows|rejectattr('v', 'gt',"
     " 2)|map(attribute='v')|list }}"),
    ("{{ messages|selectattr('role', 'equalto', 'user')|map(attribute='content')|first }} {{"
     " messages|rejectattr('role', '==', 'user')|list|length }}"),
    "{{ none|map('upper')|list }} {{ missing|select|list }} {{ ''|map('upper')|list }}",
    "{{ l|map('nope')|list }}", "{{ l|select('nope')|list }}", "{{ 5|map('upper')|list }}",
    "{{ l|map|list }}", "{{ l|selectattr|list }}",
    "{% set g = l|map('string') %}{{ g|list }}{{ g|list }}",
    ("{% set g = l|select %}{% for x in g %}{{ x }}{% endfor %}{% for x in g %}{{ x }}{% endfor"
     " %}|"),
    "{% set g = l|map('string') %}{{ g|first }}{{ g|list }}",
    ("{{ (l|map('string')) is iterable }} {{ (l|map('string')) is sequence }} {{ 'x' if"
     " l|map('string') else 'y' }}"),
    # Tests.
    ("{{ s is defined }} {{ missing is defined }} {{ missing is undefined }} {{ d.zz is defined"
     " }} {{ d.b is not defined }}"),
    "{{ none is none }} {{ 0 is none }} {{ missing is none }} {{ nothing is not none }}",
    ("{{ s is string }} {{ n is string }} {{ d is mapping }} {{ l is mapping }} {{ n is number"
     " }} {{ f is number }} {{ t is number }} {{ s is number }}"),
    ("{{ n is integer }} {{ t is integer }} {{ f is integer }} {{ f is float }} {{ n is float }}"
     " {{ t is boolean }} {{ n is boolean }}"),
    "{{ t is true }} {{ no is false }} {{ 1 is true }} {{ 0 is false }}",
    ("{{ s is iterable }} {{ l is iterable }} {{ n is iterable }} {{ none is iterable }} {{ d is"
     " iterable }} {{ missing is iterable }}"),
    ("{{ s is sequence }} {{ l is sequence }} {{ d is sequence }} {{ n is sequence }} {{"
     " d.items() is sequence }} {{ range(2) is sequence }} {{ missing is sequence }} {{ (1,) is"
     " sequence }}"),
    ("{{ 3 is odd }} {{ 3 is even }} {{ 4 is even }} {{ 9 is divisibleby 3 }} {{ 9 is"
     " divisibleby(2) }} {{ -3 is odd }}"),
    ("{{ 1 is eq 1 }} {{ 1 is equalto(2) }} {{ 1 is ne 2 }} {{ 1 is lt 2 }} {{ 1 is gt 2 }} {{ 1"
     " is le 1 }} {{ 1 is ge 2 }} {{ 2 is greaterthan 1 }} {{ 2 is lessthan 1 }}"),
    "{{ 1 is in [1, 2] }} {{ 'a' is in 'abc' }} {{ 3 is not in l }} {{ 1 is in(l) }}",
    "{{ 'abc' is lower }} {{ 'ABC' is upper }} {{ 'aB' is lower }} {{ 5 is lower }}",
    "{{ true is sameas true }} {{ 1 is sameas true }} {{ none is sameas none }}",
    "{{ range is callable }} {{ s is callable }} {{ missing is callable }}",
    "{{ 'upper' is filter }} {{ 'nope' is filter }} {{ 'odd' is test }} {{ 'nope' is test }}",
    "{{ s is escaped }} {{ (s|safe) is escaped }}",
    "{{ s is string and n is integer or missing is defined }}",
    "{{ 'yes' if s is string else 'no' }} {{ not s is string }} {{ s is not string }}",
    "{{ 'x' is odd }}", "{{ missing is odd }}", "{{ l|length is gt 2 }} {{ 1 + 1 is eq 2 }}",
    "{{ messages[0].role is string and messages[0] is mapping }}",
    # set, scoping, namespace.
    "{% set x = 5 %}{{ x }}{% set x = x + 1 %}{{ x }}", "{% set a, b = 1, 2 %}{{ a }}{{ b }}",
    "{% set (a, b), c = [(1, 2), 3] %}{{ a }}{{ b }}{{ c }}", "{% set a, b = [1] %}",
    "{% set a, b = [1, 2, 3] %}", "{% set a, b = none %}", "{% set a, b = 'xy' %}{{ b }}{{ a }}",
    "{% set x %}a {{ n }} b{% endset %}[{{ x }}]",
    "{% set x | upper | trim %} ab {% endset %}[{{ x }}]",
    "{% set x %}{% set y = 1 %}{% endset %}{{ y }}|",
    "{% for i in l %}{% set x = i %}{% endfor %}{{ x }}|",
    "{% set x = 0 %}{% for i in l %}{% set x = x + i %}{{ x }} {% endfor %}{{ x }}",
    "{% if t %}{% set x = 1 %}{% endif %}{{ x }}", "{% if no %}{% set n = 1 %}{% endif %}{{ n }}",
    ("{% set ns = namespace(a=1, b='x') %}{% set ns.a = 2 %}{% set ns.c = 3 %}{{ ns.a }}{{ ns.b"
     " }}{{ ns.c }}{{ ns.d }}|"),
    "{% set ns = namespace(t=0) %}{% for i in l %}{% set ns.t = ns.t + i %}{% endfor %}{{ ns.t }}",
    "{% set ns = namespace({'q': 5}, r=6) %}{{ ns.q }}{{ ns['r'] }} {{ ns }}", "{% set d.x = 1 %}",
    "{% set zz.x = 1 %}", "{% set ns = namespace() %}{{ ns.foo.bar }}",
    "{% set x = 1, 2 %}{{ x }}", "{% set x = none if no else s %}{{ x }}",
    "{% set n = 1 %}{{ n }}",
    "{% set ns = namespace() %}{% set ns.x %}block{% endset %}{{ ns.x }}",
    "{{ dict(a=1, b=2) }} {{ dict({'x': 1}, y=2) }} {{ dict([('k', 'v')]) }} {{ dict() }}",
    "{% with a=1, b=n %}{{ a }}{{ b }}{% set a = 3 %}{{ a }}{% endwith %}{{ a }}|",
    "{% with %}{% set z = 1 %}{% endwith %}{{ z }}|",
    "{% set a = 9 %}{% with a=1, b=a %}{{ a }}{{ b }}{% endwith %}",
    "{% filter upper %}ab {{ s }}{% endfilter %}",
    "{% filter replace('a', 'b')|upper %}xax{% endfilter %}",
    "{% generation %}{{ s }}{% set q = 1 %}{% endgeneration %}{{ q }}|",
    "{% for i in [1] %}{{ i }}{% set i = 5 %}{{ i }}{% endfor %}",
    # for.
    "{% for x in l %}{{ x }},{% endfor %}", "{% for x in [] %}a{% else %}none{% endfor %}",
    "{% for x in l if x > 1 %}{{ x }}{{ loop.index }}/{{ loop.length }} {% endfor %}",
    "{% for x in l if x > 9 %}a{% else %}e{% endfor %}",
    "{% for a, b in [(1, 2), [3, 4]] %}{{ a }}-{{ b }} {% endfor %}",
    "{% for a, (b, c) in [(1, (2, 3))] %}{{ a }}{{ b }}{{ c }}{% endfor %}",
    ("{% for x in l %}{{ loop.index }}{{ loop.index0 }}{{ loop.revindex }}{{ loop.revindex0 }}{{"
     " loop.first }}{{ loop.last }}{{ loop.length }}{{ loop.depth }}{{ loop.depth0 }};{% endfor"
     " %}"),
    "{% for x in l %}[{{ loop.previtem }},{{ x }},{{ loop.nextitem }}]{% endfor %}",
    ("{% for x in l %}{% if loop.previtem is defined %}{{ loop.previtem }}{% else %}first{%"
     " endif %}{% endfor %}"),
    ("{% for m in messages %}{% if loop.nextitem and loop.nextitem.role == 'assistant' %}next{%"
     " endif %}{% endfor %}"),
    "{% for x in l %}{{ loop.nextitem.foo }}{% endfor %}",
    "{% for x in l %}{{ loop.cycle('a', 'b') }}{% endfor %}",
    "{% for x in [1, 1, 2] %}{{ loop.changed(x) }}{% endfor %}",
    "{% for x in s %}{{ x }}.{% endfor %}", "{% for k in d %}{{ k }}{% endfor %}",
    "{% for x in missing %}a{% else %}b{% endfor %}", "{% for x in none %}{% endfor %}",
    "{% for x in 5 %}{% endfor %}",
    "{% for x in range(3) %}{{ x }}{% endfor %}{% for x in range(5, 0, -2) %}{{ x }}{% endfor %}",
    "{% for x in range(200000) %}{% endfor %}",
    "{% for x in l %}{% if x == 1 %}{% break %}{% endif %}{{ x }}{% endfor %}",
    "{% for x in l %}{% if x == 1 %}{% continue %}{% endif %}{{ x }}{% endfor %}",
    "{% for x in l %}{% break %}{% else %}else{% endfor %}",
    "{% for x in l %}{% continue %}{% else %}else{% endfor %}",
    ("{% for x in l %}{% for y in l %}{% if y == x %}{% break %}{% endif %}{{ x }}{{ y }} {%"
     " endfor %}{{ loop.index }};{% endfor %}"),
    ("{% for x in l %}{% set outer = loop %}{% for y in [1] %}{{ outer.index }}{{ loop.index"
     " }}{% endfor %}{% endfor %}"),
    "{{ loop }}|", "{% for x in l %}{{ loop.foo.bar }}{% endfor %}",
    "{% for x in 1, 2 %}{{ x }}{% endfor %}", "{% for x in l %}{{ loop }}{% endfor %}",
    "{% for x in l %}{{ loop|length }}{% endfor %}", "{% for a, b in l %}{% endfor %}",
    "{% for x in (l if t else []) %}{{ x }}{% endfor %}",
    "{% for x in l|sort %}{{ x }}{% endfor %}",
    "{% for x in l %}{{ x }}{{ ',' if not loop.last }}{% endfor %}",
    "{% for m in messages[1:] %}{{ m.role }}{% endfor %}",
    "{% for x in l %}{{ y }}{% set y = x %}{{ y }}{% endfor %}",
    "{% for x in l %}{% else %}{{ loop }}{% endfor %}",
    # if.
    "{% if n > 5 %}a{% elif n > 3 %}b{% else %}c{% endif %}",
    "{% if no %}a{% elif t %}b{% else %}c{% endif %}", "{% if missing %}a{% endif %}b",
    "{% if not messages %}a{% endif %}{% if el %}b{% endif %}{% if d %}c{% endif %}",
    "{% if 0.0 or '' or [] or {} or none %}a{% else %}b{% endif %}",
    "{% if add_generation_prompt %}gen{% endif %}{{ add_generation_prompt }}",
    "{% if tools %}x{% endif %}{{ tools is none }} {{ documents is none }}",
    # Macros.
    ("{% macro m(a, b=2, c='x') %}{{ a }}{{ b }}{{ c }}{% endmacro %}{{ m(1) }} {{ m(1, c=5) }}"
     " {{ m(b=3, a=4) }} {{ m() }}|"),
    "{% macro m(a) %}{{ a is defined }}{% endmacro %}{{ m() }}",
    "{% macro m(a) %}{{ a.x }}{% endmacro %}{{ m() }}",
    "{% macro m(a, b=a) %}{{ b }}{% endmacro %}{{ m(7) }}",
    "{% macro m() %}{{ varargs }} {{ kwargs }}{% endmacro %}{{ m(1, 2, z=3) }}",
    "{% macro m(a) %}x{% endmacro %}{{ m(1, 2) }}", "{% macro m(a) %}x{% endmacro %}{{ m(z=2) }}",
    "{% macro m(a) %}{% if a > 0 %}{{ a }}{{ m(a - 1) }}{% endif %}{% endmacro %}{{ m(4) }}",
    "{% macro m() %}{{ q }}{% endmacro %}{% set q = 5 %}{{ m() }}",
    "{% macro m() %}{{ i }}{% endmacro %}{% for i in l %}[{{ m() }}]{% endfor %}",
    "{% macro m() %}{% set q = 1 %}{% endmacro %}{{ m() }}{{ q }}|",
    "{% macro m() %} a {% endmacro %}[{{ m()|trim }}] [{{ m() | upper }}]",
    "{% macro m() %}x{% endmacro %}{{ m }}",
    "{% macro a() %}{{ b() }}{% endmacro %}{% macro b() %}B{% endmacro %}{{ a() }}",
    "{% macro m(a) %}{{ a }}{% endmacro %}{{ m(m('q')) }}",
    "{% macro m(l) %}{% for x in l %}{{ loop.index }}{{ x }}{% endfor %}{% endmacro %}{{ m(l) }}",
    "{% macro m(x) -%}\n  {{ x }}\n{%- endmacro %}[{{ m(1) }}]",
    "{% macro m(a=missing) %}[{{ a }}]{% endmacro %}{{ m() }}",
    "{{ later() }}{% macro later() %}x{% endmacro %}",
    ("{% set ns = namespace(n=0) %}{% macro m() %}{% set ns.n = ns.n + 1 %}{% endmacro %}{{ m()"
     " }}{{ m() }}{{ ns.n }}"),
    "{% macro m(a, b=1) %}{{ a }}{{ b }}{% endmacro %}{{ m('x', b=none) }}",
    # Functions.
    "{{ raise_exception('boom') }}", "{{ raise_exception('a' ~ n ~ ' é') }}",
    "{% if no %}{{ raise_exception('x') }}{% endif %}ok",
    "{{ strftime_now('%Y-%m-%d %H:%M:%S') }} {{ strftime_now('%d %B %Y, %A %b %a %j %y %I %p') }}",
    "{{ strftime_now('') }}|",
    "{{ range(3) | list }} {{ range(1, 4)|list }} {{ range(10, 0, -3)|list }} {{ range(0)|list }}",
    "{{ range(3)[1] }} {{ range(10)[2:5]|list }} {{ range(4)|length }} {{ 2 in range(3) }}",
    "{{ bos_token }}{{ eos_token }}{{ pad_token }}|",
    "{{ messages|length }} {{ messages[0]['content'] }}", "{{ range('a') }}",
    "{{ range(1, 2, 0) }}", "{{ namespace is defined }}",
    # White space control: trim_blocks and lstrip_blocks are on.
    "a\n  {% if t %}\n  b\n  {% endif %}\nc", "a  {%- if t -%}  b  {%- endif -%}  c",
    "  {% if t %}x{% endif %}  y", "a\n{{ s }}\nb\n", "a\n  {{ n }}\n  {{- n }}\n{{ n -}}\n b",
    "{%+ if t %} x{% endif %}", "a\n  {%+ if t +%}\nx{% endif %}\n\nb",
    "a {# comment #} b\n  {# line #}\nc", "a {#- x -#} b", "a\n   {#- x #}\nb",
    "{# a #}\n{# b #}\nx", "a\n\t {% set x = 1 %}\t\nb", "{% set x = 1 -%}\n\n  b",
    "x\n  {%- set y = 2 %}\n  z", "x {%+ set y = 2 %} z", "line\r\n{% if t %}\r\nx\r{% endif %}",
    "\n\n{{ n }}\n\n", "{% raw %}{{ x }} {% if %}{% endraw %}|",
    "a\n  {% raw %}\n  {{ b }}\n  {% endraw %}\nc", "a {%- raw -%}  {{ x }}  {%- endraw -%}  b",
    "{% raw -%}\n x{% endraw +%}\ny", "{#\nmulti\n#}\nx", "{{ '\n' }}x", "{{- n -}} x",
    "a\u2003{%- if t %}b{% endif %}", "a\x0b  {% if t %}b{% endif %}",
    "{% if t %}\n\nx{% endif %}", "{% if t -%}\nx\n{%- endif %}\ny",
    "  \n  {% if t %}a{% endif %}", "a{% if t %}\n{% endif %}b",
    "{{ n }}\n{% if t %}x\n{% endif %}\n", "{%if t%}x{%endif%}", "{{n}}{{s}}",
    "{%- for x in l %}\n  {{- x }}\n{% endfor %}", "   {{ n }}", "a\n   {{ n }}",
    "{% for x in l %}\n  - {{ x }}\n{% endfor %}\nend", "{% set x = 1 %}\n\n{% set y = 2 %}\n\nz",
    "{ {{ n }} } {x} %} }}", "{", "{ %", "a{{ '' }}\n", "\n", "", "{{ n }}{# a #}{{ n }}{#b#}",
    "{# {{ x }} {% y %} #}z", "{#-#}a{#+ x +#}\nb",
    # Parsing corners.
    "{{ (1) }} {{ ((2)) }} {{ (1, ) }} {{ [1, ] }} {{ {'a': 1, } }}",
    "{{ l|length + 1 }} {{ -1|abs }} {{ (l|first) ** 2 }} {{ 2 * l|first }}",
    "{{ s|lower|upper|length }}", "{{ s . upper ( ) }} {{ d [ 'b' ] }} {{ l | first }}",
    "{{ d.a[1].x is none }} {{ not d.a[0] == 1 }}", "{{ 'a' if t else 'b' if no else 'c' }}",
    "{{ 1 if no else 2 }}{{ 'x' ~ ('y' if t else 'z') }}",
    "{{ {'a': [1, 2, {'b': (3,)}]}['a'][2]['b'][0] }}",
    "{{ not(s.startswith('H') and s.endswith('d')) }}",
    "{{ true and not false }} {{ 1 < 2 and 2 < 3 }} {{ 'a' in 'abc' and 'z' not in 'abc' }}",
    "{{ [x, y]|length if x is defined else 'u' }}",
    "{{ messages[0]['role'] + ':' + messages[0].content|trim + '!' }}",
    "{{ 5 is integer }}{{ 5 is not string }}", "{{ (s is string) == true }}",
    "{% set _ = 1 %}{{ _ }}", "{% set x = {'role': 'a'} %}{{ x.role }}{{ x['role'] }}",
    "{{ ''|default('q', true) ~ 'r' }}",
    "{{ s[l[1]] }} {{ s[l|first - 1] }} {{ l[-n:] }} {{ l[n - 6] }}",
    "{{ 1 if 'x' is string and t }}", "{{ d is mapping and 'b' in d and d.b == 1 }}",
    "{{ '' if loop is defined }}|", "{{ (s, n)[0] }} {{ [s][0][0] }}", "{{ 1 ~ ', ' ~ 2.50 }}",
    "{{ namespace(a=1).a }}", "{{ s.split(',')[0].strip().lower() }}",
    "{{ s|replace(',', '')|lower|title }}", "{{ 'a'.upper() ~ 'b' | upper }}",
    "{{ f|int + n|float }}", '{{ "a\\\nb" }}',
]

LOOSE = [
    "{{ 1 // 0 }}", "{{ 1 % 0 }}", "{{ 1.0 // 0 }}", "{{ 1.0 % 0 }}", "{{ s.split(1) }}",
    "{{ s.upper(1) }}", "{{ range() }}", "{{ range(1, 2, 3, 4) }}", "{{ l|batch }}",
    "{{ l|sort(nope=1) }}", "{{ s|replace('a') }}", "{{ d|tojson(nope=1) }}",
    "{{ s.startswith(1) }}", "{{ s.startswith(['a']) }}", "{{ raise_exception() }}",
    "{{ 0 ** -1 }}", "{% for x in l %}{{ loop(x) }}{% endfor %}", "{{ none|dictsort }}",
    "{{ n.x.y }}", "{{ l|join(attribute='x.y') }}", "{{ '%c' % 'ab' }}", "{{ '%q' % 1 }}",
    "{{ '%d' % none }}", "{{ {[1]: 2} }}", "{{ 'x'|truncate(1) }}", "{{ s.index(5) }}",
    "{{ s.join(none) }}", "{{ s.center('a') }}", "{{ dict(5) }}", "{{ dict([1]) }}",
    "{{ 1|default(2, 3, 4) }}", "{{ s.find() }}", "{{ loop.cycle() }}", "{{ '{x}'.format() }}",
    "{{ '{0}{}'.format() }}", "{{ '}'.format() }}", "{{ '{1}'.format(1) }}",
    "{{ 'a b'.split(maxsplit='x') }}",
]

COMPILE_ERRORS = [
    "{{", "{{ }}", "{% if %}{% endif %}", "{% if x %}", "{% for x in y %}", "{% endif %}",
    "{% nope %}", "{% rawx %}", "{% raw x %}", "{{ x|nope }}", "{{ x is nope }}", "{{ 1 + }}",
    "{{ (1 }}", "{{ [1 }}",
    "{{ 1) }}", "{{ 'abc }}", "{# open", "{% raw %}x", "{% set %}", "{% set x = %}",
    "{% set 1 = 2 %}", "{% set true = 2 %}", "{% for loop in y %}{% endfor %}",
    "{% for in y %}{% endfor %}", "{% for x y %}{% endfor %}", "{% macro %}{% endmacro %}",
    "{% macro m( %}{% endmacro %}", "{% macro m(a=1, b) %}{% endmacro %}", "{{ f(a=1, 2) }}",
    "{{ x. }}", "{{ x[] }}", "{{ {1} }}", "{{ {1: } }}", "{{ a b }}", "{{ 1 2 }}",
    "{% if x %}{% endfor %}", "{% for x in y %}{% endif %}", "{% break %}", "{% continue %}",
    "{{ x|  }}", "{{ x is }}", "{{ @ }}", "{{ $x }}", "{{ a ? b }}", "{{ x is string is string }}",
    "{{ not }}", "{{ 1 if }}", "{% else %}", "{% set x %}", "{% filter %}{% endfilter %}",
    "{{ 007 }}", "{{ '\\x4' }}", "{% if x %}{% else %}{% else %}{% endif %}",
    "{% if t %}{% elif %}{% endif %}", "a {{ b }} {% c", "{{ a = 1 }}", "{{ a; b }}",
]

REFUSED = [
    ("{% include 'x' %}", "'include'"), ("{% import 'x' as y %}", "'import'"),
    ("{% extends 'x' %}", "'extends'"), ("\n\n{% block b %}{% endblock %}", "'block'"),
    ("{% call m() %}{% endcall %}", "'call'"),
    ("{% for x in y recursive %}{% endfor %}", "recursive"), ("{{ x|groupby('a') }}", "'groupby'"),
    ("{{ x|urlencode }}", "'urlencode'"), ("{{ x|pprint }}", "'pprint'"),
    ("{{ lipsum() }}", "'lipsum'"), ("{{ cycler('a') }}", "'cycler'"),
    ("{{ joiner(',') }}", "'joiner'"), ("{{ x.encode() }}", "'encode'"),
    ("{{ x.translate(y) }}", "'translate'"), ("{{ f(*a) }}", "unpacking"),
    ("{{ f(**a) }}", "unpacking"),
    ("{% for x in y %}{% macro m() %}{% endmacro %}{% endfor %}", "macro"),
    ("{{ 99999999999999999999 }}", "99999999999999999999"),
    ("{% autoescape true %}{% endautoescape %}", "'autoescape'"), ("{{ x|random }}", "'random'"),
    ("{{ x[1:2, 3] }}", "slice"),
]
