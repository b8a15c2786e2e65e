#!/usr/bin/env python3
"""Writes the fixed set of `nibble eval canary`: make_canary.py src/eval/canary/decisions.jsonl

Short decisions that rounding has been seen to flip: which of two discounts is larger, in English
and in Czech; identifiers and dates copied out of a text; one word of a list; JSON; which tool is
called. Seeded; the right answers follow from the draw. Needs no packages.
"""
import json
import random
import sys

CZECH_THINGS = ["stůl", "kabát", "počítač", "kolo", "deštník", "batoh"]
ENGLISH_THINGS = ["table", "coat", "computer", "bicycle", "umbrella", "backpack"]
MOODS = {"The parcel came late and the box was torn.": "negative",
         "The sound is clear and the battery lasts for days.": "positive",
         "It is a cable of one metre length.": "neutral",
         "I would not buy it again.": "negative"}


def tool(name, words, **properties):
    return {"type": "function", "function": {
        "name": name, "description": words,
        "parameters": {"type": "object", "properties": properties,
                       "required": list(properties)}}}


TEXT = {"type": "string"}
TOOLS = [tool("get_weather", "The weather forecast of a city", city=TEXT),
         tool("convert_currency", "Converts an amount of money", amount={"type": "number"},
              source=TEXT, target=TEXT),
         tool("create_event", "Puts an event into the calendar", title=TEXT, date=TEXT)]
REQUESTS = [
    ("What will the weather be like in Oslo?", "get_weather", {"city": "Oslo"}),
    ("Convert 250 EUR to CZK.", "convert_currency",
     {"amount": 250, "source": "EUR", "target": "CZK"}),
    ("Put \"Dentist\" into my calendar for 2026-03-14.", "create_event",
     {"title": "Dentist", "date": "2026-03-14"}),
    ("Will it rain in Brno?", "get_weather", {"city": "Brno"}),
    ("Create an event \"Rent\" on 2026-12-01.", "create_event",
     {"title": "Rent", "date": "2026-12-01"}),
    ("How much is 19.5 USD in JPY? Convert it.", "convert_currency",
     {"amount": 19.5, "source": "USD", "target": "JPY"}),
]


def item(name, check, answer, text, **more):
    kind = name.rpartition("-")[0]
    return {"id": name, "task": kind, "thinking": False, "check": check, "answer": answer,
            "messages": [{"role": "user", "content": text}], "max_tokens": 200, **more}


def discount(draw, number, czech):
    thing = (CZECH_THINGS if czech else ENGLISH_THINGS)[number % 6]
    while True:
        prices = [draw.randrange(10, 100) * 10 for _ in range(2)]
        cuts = [draw.choice([5, 10, 15, 20, 25, 30, 40]) for _ in range(2)]
        ends = [p * (100 - c) / 100 for p, c in zip(prices, cuts)]
        if 0 < abs(ends[0] - ends[1]) < 0.1 * ends[0]:  # near, so that it has to be computed
            break
    letter = "A" if ends[0] < ends[1] else "B"
    if czech:
        text = (f"Obchod A prodává {thing} za {prices[0]} Kč se slevou {cuts[0]} %. Obchod B ho "
                f"prodává za {prices[1]} Kč se slevou {cuts[1]} %. Kde je levnější? Odpověz jen "
                "písmenem A nebo B.")
        return item(f"discount-cs-{number}", "letter", letter, text)
    text = (f"Shop A sells a {thing} for ${prices[0]} with {cuts[0]}% off. Shop B sells it for "
            f"${prices[1]} with {cuts[1]}% off. Where is it cheaper? Answer only with the letter "
            "A or B.")
    return item(f"discount-en-{number}", "letter", letter, text)


def identifier(draw, number):
    digits = "0123456789abcdef"
    made = ["".join(draw.choice(digits) for _ in range(n)) for n in (8, 4, 4, 12)]
    right, other = "-".join(made), "-".join(reversed(made))
    text = (f"Order {right} was shipped on Monday. Order {other} was cancelled. Which order was "
            "shipped? Answer only with its identifier.")
    return item(f"id-{number}", "exact", right, text)


def date(draw, number):
    day, month, year = draw.randrange(1, 29), draw.randrange(1, 13), draw.randrange(1990, 2030)
    text = (f"The contract of {day:02}.{month:02}.{year} (day, month, year) ended. Answer only "
            "with its date in the form YYYY-MM-DD.")
    return item(f"date-{number}", "exact", f"{year}-{month:02}-{day:02}", text)


def as_json(draw, number):
    names, count = draw.sample(["Ines", "Karel", "Mei", "Omar", "Tess"], 2), draw.randrange(2, 90)
    value = {"buyer": names[0], "items": [{"article": "pen {blue}", "count": count}],
             "note": f"for \"{names[1]}\"", "paid": bool(number % 2)}
    text = (f"{names[0]} buys {count} of the article `pen {{blue}}`. The note is: for "
            f"\"{names[1]}\". It is {'paid' if number % 2 else 'not paid'}. Write this as JSON "
            "with the keys buyer, items (a list of objects with article and count), note, paid "
            "(true or false). Answer only with the JSON.")
    return item(f"json-{number}", "json", value, text)


def main():
    draw, items = random.Random(7), []
    for number in range(6):
        items += [discount(draw, number, False), discount(draw, number, True)]
    for number in range(4):
        items += [identifier(draw, number), date(draw, number), as_json(draw, number)]
    for number, (text, mood) in enumerate(MOODS.items()):
        question = (f"{text}\n\nIs this review positive, negative or neutral? Answer only with "
                    "that word in lower case.")
        items.append(item(f"enum-{number}", "exact", mood, question))
    for number, (text, name, arguments) in enumerate(REQUESTS):
        items.append(item(f"tool-{number}", "tool_call", {"name": name, "arguments": arguments},
                          text, tools=TOOLS))
    items.sort(key=lambda each: each["task"])
    with open(sys.argv[1], "w", encoding="utf-8") as out:
        for each in items:
            out.write(json.dumps(each, ensure_ascii=False) + "\n")
    print(f"{len(items)} items")


if __name__ == "__main__":
    main()
