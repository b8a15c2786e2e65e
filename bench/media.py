"""Time of preparing images beside Pillow and numpy, one thread each, same machine, in turn.

Usage: bench/media.py TOOL [ROUNDS]. TOOL is nibble_media_tool of a release build. Both sides take
decoded RGB to pixel_values (resize, normalise, cut into patches, F32 rows); theirs is what
transformers' Qwen2VLImageProcessorPil does, without its checks. Nibble keeps bytes and a table of
values, which the tower's first product reads: that time, with the digest, is the column "bytes
only". Decoding of the same picture as JPEG stands apart. Processor time, best of the rounds.
"""

import io
import pathlib
import sys
import time

import numpy as np
from PIL import Image

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tools/oracle"))

import media_corpus  # noqa: E402
from media_test import PUBLISHED, Tool  # noqa: E402

# (width, height), largest area of the processor, (width, height) after resizing
CASES = [((1920, 1080), 16777216, (1920, 1088)), ((4000, 3000), 2048 * 1536, (2048, 1536))]


def their_rows(image, size, patch=16, merge=2, frames=2):
    """The steps of Qwen2VLImageProcessorPil on an array [height, width, 3]."""
    resized = np.array(Image.fromarray(image).resize(size, Image.Resampling.BICUBIC))
    pixels = (resized.transpose(2, 0, 1).astype(np.float64) * (1 / 255)).astype(np.float32)
    mean = np.full(3, 0.5, np.float32)
    pixels = ((pixels.T - mean) / mean).T
    h, w = size[1] // patch, size[0] // patch
    patches = pixels.reshape(3, h // merge, merge, patch, w // merge, merge, patch)
    patches = patches.transpose(1, 4, 2, 5, 0, 3, 6)[:, :, :, :, :, None]
    patches = np.broadcast_to(patches, (*patches.shape[:5], frames, patch, patch))
    return patches.reshape(h * w, 3 * frames * patch * patch)


def best(rounds, work):
    spent = []
    for _ in range(rounds):
        began = time.process_time()
        work()
        spent.append(time.process_time() - began)
    return 1000 * min(spent)


def main():
    if len(sys.argv) not in (2, 3):
        sys.exit(__doc__)
    rounds = int(sys.argv[2]) if len(sys.argv) == 3 else 7
    tool = Tool(pathlib.Path(sys.argv[1]))
    print(f"{'RGB':>11} -> {'RGB':9}  {'theirs':>7} {'Nibble':>7} {'times':>6} {'bytes only':>11}"
          f" {'JPEG: theirs':>13} {'Nibble':>7}  ms")
    for (width, height), largest, size in CASES:
        image = media_corpus.picture(1, width, height).astype(np.uint8)
        file = media_corpus.saved(Image.fromarray(image), "JPEG", quality=90)
        pixels = np.array(Image.open(io.BytesIO(file)))
        tool.put(file)
        config = PUBLISHED | {"size": {"shortest_edge": 65536, "longest_edge": largest}}
        head, raw = tool.ask("patches", config=config)
        assert np.array_equal(np.frombuffer(raw, np.float32), their_rows(pixels, size).ravel())
        mine = {}
        theirs = decoded = 1e9
        for _ in range(3):
            theirs = min(theirs, best(rounds, lambda: their_rows(pixels, size)))
            decoded = min(decoded, best(rounds, lambda: Image.open(io.BytesIO(file)).load()))
            spent, _ = tool.ask("time", config=config, rounds=rounds)
            mine = {key: min(mine.get(key, 1e9), spent[key]) for key in spent}
        print(f"{width:6}x{height:4} -> {size[0]}x{size[1]:4}  {theirs:7.1f} "
              f"{mine['prepare_and_rows_ms']:7.1f} {theirs / mine['prepare_and_rows_ms']:6.2f} "
              f"{mine['prepare_ms']:11.1f} {decoded:13.1f} {mine['decode_ms']:7.1f}")
    tool.close()


if __name__ == "__main__":
    main()
