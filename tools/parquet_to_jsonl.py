#!/usr/bin/env python3
"""Parquet files of a data hub as JSON lines: parquet_to_jsonl.py FILE.parquet... > OUT.jsonl

One object per row with the columns' names, in the order of the files; --columns A,B keeps only
those, --rows N stops after N. `nibble quantize --calib` reads the result. Needs pyarrow.
"""

import argparse
import json
import math
import sys


def plain(value):
    """The value as JSON can hold it: bytes and dates as text, NaN and infinity as null."""
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    if isinstance(value, dict):
        return {key: plain(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [plain(inner) for inner in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    return str(value)


def write(files, columns, rows_max, out):
    """Returns the number of rows."""
    import pyarrow.parquet

    done = 0
    for name in files:
        source = pyarrow.parquet.ParquetFile(name)
        for batch in source.iter_batches(batch_size=256, columns=columns):
            for row in batch.to_pylist():
                if rows_max is not None and done >= rows_max:
                    return done
                out.write(json.dumps(plain(row), ensure_ascii=False, allow_nan=False) + "\n")
                done += 1
    return done


def main():
    words = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    words.add_argument("files", nargs="+", metavar="FILE.parquet")
    words.add_argument("--columns", type=lambda text: text.split(","))
    words.add_argument("--rows", type=int)
    asked = words.parse_args()
    sys.stdout.reconfigure(encoding="utf-8", newline="\n")
    done = write(asked.files, asked.columns, asked.rows, sys.stdout)
    print(f"{done} rows", file=sys.stderr)


if __name__ == "__main__":
    main()
