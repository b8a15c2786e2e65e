"""Writes tests/corpus/image_fuzz/ and the tables of tests/golden/media/.

cases.json: some small files of media_corpus.py, with the pixels that Pillow decodes and the patches
that transformers' image processor makes of them, as CRC-32; the files are the fuzz corpus of the
decoders too. resizes.json: pixels made by a formula, at other sizes, as Pillow resizes them.
`--check` compares instead of writing.
"""

import json
import pathlib
import sys
import tempfile
import zlib

import numpy as np
from PIL import Image

import media_corpus
import media_test

ROOT = pathlib.Path(__file__).resolve().parents[2]
FILES = ROOT / "tests/corpus/image_fuzz"
CASES = ROOT / "tests/golden/media/cases.json"
RESIZES = ROOT / "tests/golden/media/resizes.json"
# (width, height, width after, height after): up, down, both, one direction, and around the border
# where Pillow takes the passes in the other order.
SIZES = [(100, 100, 90, 80), (100, 100, 90, 79), (100, 100, 90, 71), (100, 100, 90, 100),
         (100, 100, 100, 33), (100, 100, 101, 99), (100, 100, 99, 101), (100, 100, 200, 300),
         (100, 100, 7, 8), (100, 100, 8, 1), (1, 1, 5, 3), (3, 2, 64, 96), (200, 1, 64, 2),
         (1, 200, 2, 64), (37, 53, 36, 50), (37, 53, 36, 51), (640, 3, 31, 4), (63, 65, 64, 64),
         (130, 41, 128, 32), (41, 130, 32, 128), (5, 400, 6, 11)]
CHOSEN = """
jpeg/420-1x1 jpeg/420-17x33 jpeg/420-120x31 jpeg/420-200x1 jpeg/sub0-progressive0-q75
jpeg/sub1-progressive1-q30 jpeg/sub2-progressive1-q75 jpeg/restarts jpeg/rgb-kept
jpeg/grey-progressive1 jpeg/cmyk-progressive0 jpeg/cmyk-progressive1 jpeg/padded-markers
orientation/jpeg-2 orientation/jpeg-5 orientation/jpeg-6 orientation/png-3 orientation/png-4
orientation/png-late-8 orientation/png-raw-6 orientation/png-packed-3 orientation/png-xmp-6
orientation/png-xmp-packed-8 orientation/jpeg-xmp-3 orientation/webp-6 orientation/webp-xmp
orientation/both orientation/behind-others orientation/kind-1 orientation/two-segments
orientation/count-2 orientation/jpeg-7 orientation/kind-9 orientation/jpeg-9
png/0-1-adam7-37x53 png/0-2-plain-9x8 png/0-4-plain-37x53 png/0-8-adam7-9x8 png/0-16-plain-37x53
png/0-16-adam7-9x8 png/2-8-plain-2x3 png/2-16-adam7-9x8 png/3-1-plain-9x8 png/3-2-adam7-37x53
png/3-4-plain-37x53 png/3-8-plain-37x53 png/4-8-adam7-9x8 png/4-16-plain-9x8 png/6-8-plain-9x8
png/6-16-adam7-9x8 png/key-grey1-0 png/key-grey8-170 png/key-grey16-0 png/key-rgb8-85
png/key-rgb8-341 png/palette-third png/palette-newline png/palette-half png/palette-beyond
png/palette-outside png/animated-default png/profile
webp/lossy-17x33 webp/lossy-200x1 webp/alpha-q30 webp/lossless-few-colours webp/animated
webp/smaller-frame
gif/interlaced gif/only-local gif/no-palette gif/transparent-3 gif/transparent-ramp-3
gif/transparent-few-3 gif/local-ramp gif/smaller-frame-transparent gif/outside gif/two-frames
gif/beyond-palette
""".split()


def sum_of(array):
    return zlib.crc32(np.ascontiguousarray(array).tobytes())


def case(name, path, data, processors, number):
    from transformers.image_utils import load_image
    pixels = media_test.pillow_pixels(data)
    config = media_test.CONFIGS[number % len(media_test.CONFIGS)]
    with tempfile.NamedTemporaryFile() as file:
        file.write(data)
        file.flush()
        prepared = processors(config)(images=load_image(file.name))
    rows = np.asarray(prepared["pixel_values"], dtype=np.float32)
    return {"file": path, "width": pixels.shape[1], "height": pixels.shape[0],
            "pixels": sum_of(pixels), "config": config,
            "grid": np.asarray(prepared["image_grid_thw"]).tolist()[0], "rows": sum_of(rows)}


def resize(width, height, to_width, to_height):
    """Byte i of the pixels is bits 16 to 23 of i * i * 2654435761 + i * 40503."""
    i = np.arange(width * height * 3, dtype=np.uint64)
    levels = ((i * i * 2654435761 + i * 40503) >> 16).astype(np.uint8)
    image = Image.fromarray(levels.reshape(height, width, 3))
    resized = image.resize((to_width, to_height), Image.Resampling.BICUBIC)
    return {"from": [width, height], "to": [to_width, to_height],
            "pixels": sum_of(np.array(resized))}


def table(lines):
    return "[\n" + ",\n".join(json.dumps(line) for line in lines) + "\n]\n"


def main():
    processors = media_test.processors()
    found = {name: data for name, data in media_corpus.files(large=False) if name in CHOSEN}
    assert len(found) == len(CHOSEN), set(CHOSEN) - set(found)
    files = {name.replace("/", "-"): found[name] for name in CHOSEN}
    cases = [case(name, path, data, processors, number)
             for number, (name, (path, data)) in enumerate(zip(CHOSEN, files.items()))]
    texts = {CASES: table(cases), RESIZES: table(resize(*size) for size in SIZES)}
    if sys.argv[1:] == ["--check"]:
        wrong = [name for name, data in files.items() if (FILES / name).read_bytes() != data]
        assert not wrong, f"{FILES}: made otherwise now: {wrong}"
        for path, text in texts.items():
            assert path.read_text() == text, f"{path}: Pillow or transformers gives something else"
        print(f"{len(cases)} passed, 0 failed")
        return
    FILES.mkdir(parents=True, exist_ok=True)
    CASES.parent.mkdir(parents=True, exist_ok=True)
    for name, data in files.items():
        (FILES / name).write_bytes(data)
    for path, text in texts.items():
        path.write_text(text)


if __name__ == "__main__":
    main()
