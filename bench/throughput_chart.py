#!/usr/bin/env python3
"""Draws docs/images/throughput.svg from docs/images/throughput.json: throughput_chart.py [--check].

The data are measured figures with their source; this file only draws. --check compares the picture
that is there with what would be drawn, for tests.
"""

import json
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
DATA, PICTURE = ROOT / "docs/images/throughput.json", ROOT / "docs/images/throughput.svg"

WIDTH, HEIGHT = 760, 380
LEFT, RIGHT, TOP, BOTTOM = 56, 16, 92, 44
BAR, GAP = 52, 4
STYLE = """
  text { font: 13px system-ui, sans-serif; fill: #1f2328 }
  .title { font-size: 17px; font-weight: 600 }
  .small { font-size: 12px; fill: #59636e }
  .grid { stroke: #d1d9e0; stroke-width: 1 }
  .other { fill: #a8b3bf }
  .ours { fill: #1f6feb }
  .bound { stroke: #bc4c00; stroke-width: 2; stroke-dasharray: 5 4 }
  @media (prefers-color-scheme: dark) {
    text { fill: #f0f6fc } .small { fill: #9198a1 } .grid { stroke: #3d444d }
    .other { fill: #6e7681 } .ours { fill: #4493f8 } .bound { stroke: #f0883e }
  }
"""


def escaped(text):
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def text(x, y, words, kind="", anchor="start"):
    place = f'x="{x:g}" y="{y:g}" class="{kind}" text-anchor="{anchor}"'
    return f"<text {place}>{escaped(words)}</text>"


def heading(data):
    """The opening of the picture: style, titles, legend."""
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" '
           f'aria-label="{escaped(data["title"])}">', f"<style>{STYLE}</style>",
           text(LEFT, 26, data["title"], "title"), text(LEFT, 46, data["subtitle"], "small")]
    x = LEFT
    for kind, series in zip(("other", "ours"), data["series"]):
        out += [f'<rect x="{x}" y="60" width="12" height="12" class="{kind}"/>',
                text(x + 18, 71, series["name"])]
        x += 40 + 8 * len(series["name"])
    out += [f'<line x1="{x}" y1="66" x2="{x + 24}" y2="66" class="bound"/>',
            text(x + 30, 71, data["bound"]["name"])]
    return out


def drawn(data):
    """The picture as SVG text: groups of bars by streams, the bound as a dashed line over each."""
    top = max(data["bound"]["values"])
    ceiling = -(-top * 108 // 200_000) * 2000  # room for a label above the highest line
    floor_y, plot = HEIGHT - BOTTOM, HEIGHT - BOTTOM - TOP

    def y_of(value):
        return round(floor_y - plot * value / ceiling, 1)

    def bar(x, value, kind):
        return [f'<rect x="{x:g}" y="{y_of(value)}" width="{BAR}" '
                f'height="{floor_y - y_of(value):g}" class="{kind}"/>',
                text(x + BAR / 2, y_of(value) - 5, f"{value:,}", "", "middle")]

    out = heading(data)
    for value in range(0, ceiling + 1, 2000):
        out += [f'<line x1="{LEFT}" y1="{y_of(value)}" x2="{WIDTH - RIGHT}" y2="{y_of(value)}" '
                'class="grid"/>', text(LEFT - 8, y_of(value) + 4, f"{value:,}", "small", "end")]
    group = (WIDTH - LEFT - RIGHT) / len(data["streams"])
    for i, streams in enumerate(data["streams"]):
        begin = LEFT + group * i + (group - 2 * BAR - GAP) / 2
        for kind, series, x in zip(("other", "ours"), data["series"], (begin, begin + BAR + GAP)):
            out += bar(x, series["values"][i], kind)
        bound = data["bound"]["values"][i]
        out += [f'<line x1="{begin - 8:g}" y1="{y_of(bound)}" x2="{begin + 2 * BAR + GAP + 8:g}" '
                f'y2="{y_of(bound)}" class="bound"/>',
                text(begin + BAR + GAP / 2, y_of(bound) - 5, f"{bound:,}", "small", "middle"),
                text(begin + BAR + GAP / 2, floor_y + 20,
                     f"{streams} stream" + ("s" if streams > 1 else ""), "", "middle")]
    return "\n".join([*out, "</svg>", ""])


def main():
    if sys.argv[1:] not in ([], ["--check"]):
        sys.exit("usage: throughput_chart.py [--check]")
    picture = drawn(json.loads(DATA.read_text()))
    if sys.argv[1:] == ["--check"]:
        if not PICTURE.exists() or PICTURE.read_text() != picture:
            sys.exit(f"{PICTURE} is not what {DATA} gives: run bench/throughput_chart.py")
        return
    PICTURE.write_text(picture)


if __name__ == "__main__":
    main()
