"""The Markdown tables of peers.py, from the notes that its runs left; not a program.

A folder of notes has items.json, the lengths of the held-out items and where their answers begin,
and one file for each way and draw of calibration data: processor seconds, and the divergences of
each item over all of its tokens and over its answer's.
"""

import json
import pathlib
import typing

import numpy as np

from allocation import Table, spread
from paired import interval

KINDS = ("all tokens", "answers")


class Row(typing.NamedTuple):
    name: str
    takes_data: bool
    on_card: bool
    base: str  # the way that it is compared with


def note_of(folder, way, draw):
    return folder / f"{way.replace(' ', '-')}-{draw}.json"


def write_items(folder, items, right):
    """Items as held_out.py has them; right: the share of answers that BF16 writes."""
    about = {"items": [[len(ids), answer] for ids, answer in items], "right": right}
    (folder / "items.json").write_text(json.dumps(about))


class Notes:
    """Notes of one model, as many as there are."""

    def __init__(self, folder, draws):
        about = json.loads((folder / "items.json").read_text())
        self.items = [(range(length), answer) for length, answer in about["items"]]
        self.folder, self.draws, self.right = folder, draws, about["right"]
        self.table = Table(self.items)

    def runs(self, row):
        """By draw: processor seconds and divergences. One run without data counts for each."""
        found = {}
        for draw in range(self.draws):
            note = note_of(self.folder, row.name, draw if row.takes_data else 0)
            if note.exists():
                found[draw] = json.loads(note.read_text())
        return found

    def parts(self, runs, draws):
        return self.table.parts([(None, None, runs[draw][1]) for draw in draws])

    def ratios(self, runs, base):
        """The ratios over all tokens and over answers in words, from the draws that both have."""
        draws = sorted(runs.keys() & base.keys())
        if not draws:
            return ["", ""]
        found = []
        for (values, share), (before, _) in zip(self.parts(runs, draws), self.parts(base, draws)):
            low, high = interval(before, values, share)
            ratio = (values @ share).mean() / (before @ share).mean()
            found.append(f"{ratio:.2f} ({low:.2f} to {high:.2f})")
        return found


def print_model(name, notes, rows):
    """Prints the model's table; by way the two ratios in words."""
    tokens = sum(len(ids) for ids, _ in notes.items)
    chats = sum(answer is not None for _, answer in notes.items)
    print(f"{name}: {chats} chats, {len(notes.items) - chats} texts, {tokens} tokens, "
          f"{notes.draws} draws; BF16 answers {100 * notes.right:.1f} % right\n\n"
          "| way | processor seconds | KL, all tokens | to our gptq | answers | to our gptq |"
          "\n|---|---|---|---|---|---|")
    every = {row.name: notes.runs(row) for row in rows}
    found = {}
    for row in rows:
        runs = every[row.name]
        if not runs:
            continue
        ratios = ["", ""] if row.base == row.name else notes.ratios(runs, every[row.base])
        seconds = np.mean([one[0] for one in runs.values()])
        few = "" if len(runs) == notes.draws else f" ({len(runs)} of {notes.draws} draws)"
        cells = [row.name + few, f"{seconds:.1f}{' and a card' if row.on_card else ''}"]
        for (values, share), ratio in zip(notes.parts(runs, sorted(runs)), ratios):
            cells += [spread(values, share), ratio]
        print("| " + " | ".join(cells) + " |", flush=True)
        found[row.name] = ratios
    print()
    return found


def print_side_by_side(found, rows):
    """The ratios of all models, a column for each."""
    for at, kind in enumerate(KINDS):
        print(f"| KL, {kind}, to our gptq | {' | '.join(found)} |\n|---|{'---|' * len(found)}")
        for row in rows:
            cells = [words[row.name][at] if row.name in words else "" for words in found.values()]
            if any(cells):
                print(f"| {row.name} | {' | '.join(cells)} |")
        print()


def print_tables(folders, rows, draws):
    """Prints the tables of all models whose notes are there; folders by name of the model."""
    found = {name: print_model(name, Notes(folder, draws), rows)
             for name, folder in folders.items() if pathlib.Path(folder / "items.json").exists()}
    if len(found) > 1:
        print_side_by_side(found, rows)
