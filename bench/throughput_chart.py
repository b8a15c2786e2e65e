#!/usr/bin/env python3
"""The chart of the README: tokens/s of servers at some numbers of streams, below a computed bound.

    throughput_chart.py --collect NAME=REPORT.json ... --bound PLAN.json
    throughput_chart.py
    throughput_chart.py --check [--bound PLAN.json]

The first writes the data, docs/images/throughput.json: of each REPORT, which `nibble bench serve
--json` wrote, the median "output, while all clients are served" of each number of clients, with its
machine and settings; of PLAN, which `nibble plan MODEL --gpu CARD --json` wrote, the bound for as
many streams. NAME=REPORT.json:against takes the second server of a report. Then, as without words,
docs/images/throughput.svg is drawn from the data. --check compares the picture that is there with
what would be drawn, and the bound with PLAN's, for tests. --data and --picture name other files.
"""

import argparse
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
    top = max(data["bound"]["values"] + [n for one in data["series"] for n in one["values"]])
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


def steps_of(word):
    """(name, {clients: tokens/s}, facts) of NAME=REPORT.json or NAME=REPORT.json:against."""
    name, _, path = word.partition("=")
    if not path:
        sys.exit(f"--collect {word}: expected NAME=REPORT.json")
    against = path.endswith(":against")
    report = json.loads(pathlib.Path(path.removesuffix(":against")).read_text())
    if report.get("invalid"):
        sys.exit(f"{path}: no measurement: {report['invalid']}")
    rates = {}
    for step in report["steps"]:
        figures = step["against" if against else "figures"]
        rates[int(step["step"].split()[0])] = round(
            figures["busy_output_throughput"]["median"])
    server = report["against" if against else "server"]
    return name, rates, {"model": server["model"], "machine": report["machine"],
                         "settings": report["settings"]}


def bound_of(path, streams):
    """Tokens/s at most, of the shortest context that the plan has for so many streams."""
    plan = json.loads(pathlib.Path(path).read_text())
    rates = {}
    for row in plan["speed_bound"]["rows"]:
        rates.setdefault(row["streams"], round(row["tokens_per_second"]))
    if missing := [count for count in streams if count not in rates]:
        sys.exit(f"{path}: no bound for {missing} streams")
    bandwidth = plan["card"]["bandwidth_bytes_per_second"] / 1e12
    return {"name": f"bound: the bytes of a step at {bandwidth:g} TB/s (`nibble plan`)",
            "values": [rates[count] for count in streams]}


def collected(options):
    """The data of the chart, from reports and a plan."""
    found = [steps_of(word) for word in options.collect]
    streams = sorted(found[0][1])
    if any(sorted(rates) != streams for _, rates, _ in found):
        sys.exit("the reports have different numbers of clients: " +
                 ", ".join(f"{name} {sorted(rates)}" for name, rates, _ in found))
    return {"title": options.title, "subtitle": options.subtitle, "streams": streams,
            "series": [{"name": name, "values": [rates[count] for count in streams],
                        "measured": facts} for name, rates, facts in found],
            "bound": bound_of(options.bound, streams)}


def check(data, options):
    if options.bound and data["bound"] != bound_of(options.bound, data["streams"]):
        sys.exit(f"the bound in {options.data} is not that of {options.bound}: "
                 f"{bound_of(options.bound, data['streams'])}")
    if not options.picture.exists() or options.picture.read_text() != drawn(data):
        sys.exit(f"{options.picture} is not what {options.data} gives: run "
                 "bench/throughput_chart.py")


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--collect", nargs="+", metavar="NAME=REPORT")
    parser.add_argument("--bound", metavar="PLAN")
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--title", default="Tokens per second while all streams generate")
    parser.add_argument("--subtitle", default="")
    parser.add_argument("--data", type=pathlib.Path, default=DATA)
    parser.add_argument("--picture", type=pathlib.Path, default=PICTURE)
    options = parser.parse_args()
    if options.collect:
        if not options.bound:
            sys.exit("--collect needs --bound")
        options.data.write_text(json.dumps(collected(options), indent=1) + "\n")
    data = json.loads(options.data.read_text())
    if options.check:
        return check(data, options)
    options.picture.write_text(drawn(data))


if __name__ == "__main__":
    main()
