#!/usr/bin/env python3
"""The README's table of cards, made from `nibble plan`: cards_table.py --nibble PROGRAM [--write].

Without --write it fails if the table is not what the program computes.
"""

import argparse
import json
import pathlib
import subprocess

ROOT = pathlib.Path(__file__).resolve().parents[2]
MODELS = {"35B-A3B": "qwen3.6-35b-a3b", "27B": "qwen3.6-27b"}
CARDS = ["rtx4090", "rtx5090", "rtx-pro-6000", "h100", "h200", "b200", "dgx-spark"]
BEGIN, END = "<!-- made by tests/docs/cards_table.py -->\n", "<!-- end -->\n"


def plans_of(nibble, preset):
    """{name of a card: its row} for the recipe mixed with the flags that serve has by itself."""
    done = subprocess.run([nibble, "plan", preset, "--json"], capture_output=True, text=True,
                          check=True)
    return {row["card"]["name"]: row for row in json.loads(done.stdout)["cards"]}


def cells_of(row):
    """Three cells that say how one model does on one card."""
    if not row["fits"]:
        return ["does not fit", "", ""]
    rate = next(rate["tokens_per_second"] for rate in row["speed_bound"] if rate["streams"] == 1)
    return [f"{row['longest_request']:,}", f"{row['sequences']}, {row['kv_tokens']:,}",
            f"{rate:,.0f}"]


def table(nibble):
    """The lines of the table."""
    plans = {name: plans_of(nibble, preset) for name, preset in MODELS.items()}
    heads = ["card"]
    for name in MODELS:
        heads += [f"{name}: longest request", "sequences, cached tokens", "bound of one stream"]
    lines = ["| " + " | ".join(heads) + " |", "|" + "---|" * len(heads)]
    for card in CARDS:
        cells = [plans["27B"][card]["card"]["label"]]
        for rows in plans.values():
            cells += cells_of(rows[card])
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def check(nibble, write=False):
    """Compares the table in README.md with the program's plans, or writes it."""
    readme = ROOT / "README.md"
    text = readme.read_text()
    before, rest = text.split(BEGIN)
    there, after = rest.split(END)
    made = table(nibble)
    if write:
        readme.write_text(before + BEGIN + made + END + after)
    else:
        assert there == made, f"README.md is not what plan computes; expected:\n{made}"


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--nibble", required=True)
    parser.add_argument("--write", action="store_true")
    given = parser.parse_args()
    check(given.nibble, given.write)
