"""Tasks over symbols: addition, sorting, copying, reversing, lookup, table, discount."""

import random
from dataclasses import dataclass

from item import Item, assistant, user
from lexicon import COLOURS, NAMES, NOUNS, VILLAGES, invented_word


@dataclass(frozen=True)
class Sizes:
    """How long the symbol tasks may get."""

    digits: int         # of a summand, when thinking
    numbers: int        # to sort
    copied: int         # words
    reversed: int       # words
    rows: int           # of a table
    columns: int


SHORT = Sizes(digits=6, numbers=8, copied=12, reversed=8, rows=8, columns=4)
FULL = Sizes(digits=9, numbers=10, copied=20, reversed=12, rows=10, columns=5)


def carries(a: int, b: int) -> str:
    """Addition on paper, last digit first: `7+8+1=16 c1` a line."""
    lines, carry = [f"{a} + {b}"], 0
    x, y = str(a)[::-1], str(b)[::-1]
    for n in range(max(len(x), len(y))):
        left, right = (int(s[n]) if n < len(s) else 0 for s in (x, y))
        total = left + right + carry
        lines.append(f"{left}+{right}+{carry}={total} c{total // 10}")
        carry = total // 10
    return "\n".join(lines) + f"\n= {a + b}"


def addition(rng: random.Random, thinking: bool, sizes: Sizes = FULL) -> Item:
    top = sizes.digits if thinking else 2
    a, b = (rng.randrange(10 ** rng.randint(1, top)) for _ in range(2))
    text = rng.choice(["What is {a} + {b}?", "{a} + {b} = ?", "Add {a} and {b}.",
                       "Compute {a} + {b}.", "How much is {a} plus {b}?"])
    return Item("add", [user(text.format(a=a, b=b))], str(a + b), thinking, carries(a, b),
                split_key=f"{a}+{b}")


def sorting(rng: random.Random, thinking: bool, sizes: Sizes = FULL) -> Item:
    numbers = rng.sample(range(1, 100), rng.randint(3, sizes.numbers))
    shown = " ".join(map(str, numbers))
    text = rng.choice(["Sort these numbers: {x}", "Put in ascending order: {x}",
                       "Sort from small to large: {x}", "Order the numbers {x}"])
    left, steps = numbers[:], []
    while left:
        low = min(left)
        left.remove(low)
        steps.append(f"{low}, left {' '.join(map(str, left))}" if left else f"{low}")
    answer = " ".join(map(str, sorted(numbers)))
    return Item("sort", [user(text.format(x=shown))], answer, thinking, "\n".join(steps),
                split_key=shown)


def random_piece(rng: random.Random) -> str:
    kind = rng.random()
    if kind < 0.4:
        return rng.choice(NOUNS)
    if kind < 0.7:
        return invented_word(rng)
    if kind < 0.8:
        return rng.choice(NAMES + VILLAGES)
    return str(rng.randrange(1000))


def distinct_pieces(rng: random.Random, low: int, high: int) -> list:
    pieces = []
    for _ in range(rng.randint(low, high)):
        piece = random_piece(rng)
        if piece not in pieces:
            pieces.append(piece)
    return pieces


def copying(rng: random.Random, thinking: bool, sizes: Sizes = FULL) -> Item:
    pieces = distinct_pieces(rng, 3, sizes.copied)
    shown = " ".join(pieces)
    text = rng.choice(["Copy this text: {x}", "Repeat exactly: {x}", "Write this again: {x}",
                       "Say this back to me: {x}"])
    reasoning = f"{len(pieces)} words, from {pieces[0]} to {pieces[-1]}."
    return Item("copy", [user(text.format(x=shown))], shown, thinking, reasoning, split_key=shown)


def reversing(rng: random.Random, thinking: bool, sizes: Sizes = FULL) -> Item:
    pieces = distinct_pieces(rng, 3, sizes.reversed)
    shown = " ".join(pieces)
    text = rng.choice(["Reverse the order of these words: {x}",
                       "Write backwards, word by word: {x}",
                       "Say these in reverse order: {x}", "Reverse: {x}"])
    reasoning = "\n".join(f"{n} {piece}" for n, piece in enumerate(pieces, 1))
    return Item("reverse", [user(text.format(x=shown))], " ".join(reversed(pieces)), thinking,
                reasoning, split_key=shown)


def lookup(rng: random.Random, thinking: bool, entries: int, questions: int = 1) -> Item:
    """A long list of `key=value`, then questions about it, one a turn."""
    keys = set()
    while len(keys) < entries:
        keys.add(f"{rng.choice(NOUNS)}-{rng.randrange(10, 100)}")
    keys = sorted(keys)
    rng.shuffle(keys)
    numeric = rng.random() < 0.5
    values = {k: str(rng.randrange(100, 1000)) if numeric else rng.choice(NOUNS) for k in keys}
    listing = "\n".join(f"{k}={v}" for k, v in values.items())
    ask = rng.choice(["What is the value of {k}?", "Which value has {k}?", "Look up {k}.",
                      "Find {k} in the list."])
    asked = rng.sample(keys, min(questions, len(keys)))
    messages = []
    for n, key in enumerate(asked):
        text = ask.format(k=key)
        messages.append(user(f"Here is a list.\n{listing}\n\n{text}" if n == 0 else text))
        messages.append(assistant(values[key]))
    answer = messages.pop()["content"]
    return Item("lookup", messages, answer, thinking, f"{asked[-1]}={answer}",
                split_key=listing[:200], all_turns=True)


TABLE_COLUMNS = {
    "colour": lambda rng: rng.choice(COLOURS),
    "village": lambda rng: rng.choice(VILLAGES),
    "price": lambda rng: f"{rng.randrange(1, 100)} coins",
    "weight": lambda rng: f"{rng.randrange(1, 100)} kg",
    "stock": lambda rng: f"{rng.randrange(1, 100)} left",
    "owner": lambda rng: rng.choice(NAMES),
}


def draw_table(rng: random.Random, sizes: Sizes) -> tuple[str, dict]:
    """(markdown, row -> column -> cell)."""
    rows = rng.sample(NOUNS, rng.randint(3, sizes.rows))
    columns = rng.sample(list(TABLE_COLUMNS), rng.randint(2, sizes.columns))
    cells = {row: {c: TABLE_COLUMNS[c](rng) for c in columns} for row in rows}
    lines = ["| item | " + " | ".join(columns) + " |", "|" + " --- |" * (len(columns) + 1)]
    lines += [f"| {row} | " + " | ".join(cells[row].values()) + " |" for row in rows]
    return "\n".join(lines), cells


def ask_table(rng: random.Random, cells: dict) -> tuple[str, str, str]:
    """(question, answer, reasoning)."""
    rows = list(cells)
    row, column = rng.choice(rows), rng.choice(list(cells[rows[0]]))
    text = rng.choice(["What is the {c} of the {r}?", "Tell me the {c} of {r}.",
                       "Which {c} does the {r} have?"]).format(c=column, r=row)
    reasoning = f"Row {row}: " + ", ".join(f"{c} {v}" for c, v in cells[row].items())
    return text, cells[row][column], reasoning


def table(rng: random.Random, thinking: bool, sizes: Sizes = FULL) -> Item:
    shown, cells = draw_table(rng, sizes)
    text, answer, reasoning = ask_table(rng, cells)
    return Item("table", [user(f"{shown}\n\n{text}")], answer, thinking, reasoning,
                split_key=shown)


def table_dialogue(rng: random.Random, thinking: bool) -> Item:
    """Training only: several questions about one table."""
    shown, cells = draw_table(rng, FULL)
    text, answer, reasoning = ask_table(rng, cells)
    messages = [user(f"{shown}\n\n{text}")]
    for _ in range(rng.randint(1, 7)):
        messages.append(assistant(answer))
        text, answer, reasoning = ask_table(rng, cells)
        messages.append(user(text))
    return Item("table", messages, answer, thinking, reasoning, split_key=shown, all_turns=True)


def discount(rng: random.Random, thinking: bool) -> Item:
    """Two shops, two prices, two discounts: which is cheaper, and at what price."""
    thing = rng.choice(NOUNS)
    while True:
        prices = [rng.randrange(1, 11) * 20 for _ in range(2)]
        cuts = [rng.choice([5, 10, 15, 20, 25, 30, 40, 50]) for _ in range(2)]
        saved = [p * c // 100 for p, c in zip(prices, cuts)]
        final = [p - s for p, s in zip(prices, saved)]
        if final[0] != final[1]:
            break
    shop = "A" if final[0] < final[1] else "B"
    question = rng.choice(["Which is cheaper?", "Where is it cheaper?",
                           "Which shop should I choose?"])
    text = (f"Shop A sells a {thing} for {prices[0]} with {cuts[0]}% off. Shop B sells it for "
            f"{prices[1]} with {cuts[1]}% off. {question}")
    lines = [f"{name}: {c}% of {p} is {s}, {p} - {s} = {f}"
             for name, c, p, s, f in zip("AB", cuts, prices, saved, final)]
    return Item("discount", [user(text)], f"Shop {shop} is cheaper: {min(final)}.", thinking,
                "\n".join(lines), split_key=f"{prices}{cuts}")
