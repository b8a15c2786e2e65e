"""Writes src/text/tokenizer/unicode_classes_data.cc: for every code point, whether it is \\p{L},
\\p{M}, \\p{N} or \\s to Hugging Face `tokenizers`, whether NFC may change it there or join it to
its predecessor, and whether it is younger than the Unicode 14 of PCRE2 10.42.

Two Unicode versions meet in `tokenizers` 0.23: its regex engine (Oniguruma) knows Unicode 16, its
NFC Unicode 9. The classes are therefore asked of the package itself, code point by code point; the
NFC property comes from Debian's unicode-data, without characters younger than Unicode 9
(normalization of older ones never changes).
Usage: python3 tools/unicode/unicode_classes.py [--check]
Needs: pip install tokenizers==0.23.*, apt install unicode-data.
"""

import argparse
import pathlib
import sys

from tokenizers import Regex, __version__, pre_tokenizers

UCD = pathlib.Path("/usr/share/unicode")
TARGET = pathlib.Path(__file__).resolve().parents[2] / "src/text/tokenizer/unicode_classes_data.cc"
SCALARS = [c for c in range(0x110000) if not 0xD800 <= c < 0xE000]
NFC_VERSION = (9, 0)
# Bit values as in src/text/tokenizer/unicode_classes.h.
PATTERNS = {1: r"\p{L}", 2: r"\p{M}", 4: r"\p{N}", 8: r"\s"}
NFC_ACTIVE = 16
YOUNG = 32
PCRE2_VERSION = (14, 0)


def matching(pattern):
    """The code points that `tokenizers` matches with a one-character pattern."""
    split = pre_tokenizers.Split(Regex(pattern), "removed")
    found = set()
    for i in range(0, len(SCALARS), 4096):
        batch = SCALARS[i : i + 4096]
        kept = set()
        for _, (begin, end) in split.pre_tokenize_str("".join(map(chr, batch))):
            kept.update(range(begin, end))
        found.update(c for j, c in enumerate(batch) if j not in kept)
    return found


def ucd_ranges(name):
    """Yields (code points, fields after the range) of a file of the Unicode character database."""
    for line in (UCD / name).read_text(encoding="utf-8").splitlines():
        fields = [field.strip() for field in line.split("#")[0].split(";")]
        if fields[0]:
            first, _, last = fields[0].partition("..")
            yield range(int(first, 16), int(last or first, 16) + 1), fields[1:]


def assigned_by(version):
    """The code points of a Unicode version."""
    assigned = set()
    for codes, (age,) in ucd_ranges("DerivedAge.txt"):
        if tuple(map(int, age.split("."))) <= version:
            assigned.update(codes)
    return assigned


def nfc_active():
    """Code points old enough for NFC to know that have a combining class or are not NFC_QC=Yes."""
    active = set()
    for codes, fields in ucd_ranges("DerivedNormalizationProps.txt"):
        if fields[0] == "NFC_QC":
            active.update(codes)
    for codes, fields in ucd_ranges("extracted/DerivedCombiningClass.txt"):
        if fields[0] != "0":
            active.update(codes)
    return active & assigned_by(NFC_VERSION)


def runs():
    """[(first code point, bits)], each run lasting until the next."""
    bits = [0] * 0x110000
    members = {bit: matching(pattern) for bit, pattern in PATTERNS.items()}
    for bit, codes in (members | {NFC_ACTIVE: nfc_active()}).items():
        for code in codes:
            bits[code] |= bit
    known = assigned_by(PCRE2_VERSION)
    bits = [b | YOUNG if b and c not in known else b for c, b in enumerate(bits)]
    return [(c, b) for c, b in enumerate(bits) if c == 0 or bits[c - 1] != b]


def source_text():
    words = [f"0x{first << 8 | bits:x}" for first, bits in runs()]
    lines, line = [], "   "
    for word in words:
        if len(line) + len(word) + 2 > 100:
            lines.append(line)
            line = "   "
        line += f" {word},"
    lines.append(line)
    version = ".".join(__version__.split(".")[:2])
    return "\n".join(
        [
            "// Made by tools/unicode/unicode_classes.py from Hugging Face tokenizers "
            + f"{version} (Unicode 16; NFC",
            "// Unicode 9). Each word is a code point << 8 | class bits, in force until the next.",
            "// clang-format off",
            '#include "text/tokenizer/unicode_classes.h"',
            "",
            "namespace nibble::detail {",
            "",
            "constexpr uint32_t kRuns[] = {",
            *lines,
            "};",
            "",
            "const std::span<const uint32_t> kUnicodeRuns = kRuns;",
            "",
            "}  // namespace nibble::detail",
            "",
        ]
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="compare with the file, write nothing")
    text = source_text()
    if parser.parse_args().check:
        if TARGET.read_text(encoding="utf-8") != text:
            sys.exit(f"{TARGET.name} differs from tokenizers {__version__}; run this script")
        print(f"{TARGET.name} agrees with tokenizers {__version__} on all code points")
        return
    TARGET.write_text(text, encoding="utf-8")
    print(f"{TARGET}: {len(text)} bytes")


if __name__ == "__main__":
    main()
