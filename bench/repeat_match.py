#!/usr/bin/env python3
"""How often a text goes on as it did after its last words before, by how many words were equal.

bench/repeat_match.py FILE... [--drafts 3]

Words and marks of punctuation stand for tokens. For each place of each file whose last N words the
file had before: the share of places where the next word is the one that came then (1), and where so
are the next two and three. The last column is the mean of right words of a round of so many drafts.
"""
import argparse
import collections
import pathlib
import re

WORD = re.compile(r"\s?\w+|\s?[^\w\s]+|\s+")
SIZES = (1, 2, 3, 4, 6, 8, 12, 16, 24)


def places(words, size, drafts):
    """For each place with an earlier one like it: the number of next words that are the same."""
    last = {}
    for at in range(size, len(words)):
        key = tuple(words[at - size:at])
        before = last.get(key)
        last[key] = at
        if before is None:
            continue
        right = 0
        most = min(drafts, len(words) - at)
        while right < most and words[before + right] == words[at + right]:
            right += 1
        yield right


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("files", nargs="+", type=pathlib.Path)
    parser.add_argument("--drafts", type=int, default=3)
    options = parser.parse_args()
    texts = [WORD.findall(path.read_text(errors="replace")) for path in options.files]
    print(f"{sum(map(len, texts))} words in {len(texts)} files")
    heads = "".join(f"{f'first {i + 1}':>9}" for i in range(options.drafts))
    print(f"{'equal':>5} {'places':>8}{heads} {'right':>6}")
    for size in SIZES:
        counts = collections.Counter(right for words in texts
                                     for right in places(words, size, options.drafts))
        total = sum(counts.values())
        if total == 0:
            continue
        shares = [sum(n for right, n in counts.items() if right > i) / total
                  for i in range(options.drafts)]
        print(f"{size:>5} {total:>8}" + "".join(f"{s:>9.3f}" for s in shares) +
              f" {sum(shares):>6.2f}")


if __name__ == "__main__":
    main()
