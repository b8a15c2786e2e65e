"""Compares src/media with Pillow and with transformers' image processor, bit for bit.

Usage: media_test.py TOOL [--decode-only] [--small]. TOOL is nibble_media_tool, best of a build
without sanitizers. For every file of media_corpus.py: the size told from the headers, the decoded
pixels (Pillow: Image.open, exif_transpose, convert("RGB")), and unless --decode-only the patches
under several configurations (transformers: load_image, then Qwen2VLImageProcessorPil). Versions of
libjpeg-turbo smooth progressive files without their last scans differently: those that differ are
listed with their largest difference, and their patches are compared from Nibble's own pixels.
--small leaves the largest images out.
"""

import io
import json
import pathlib
import subprocess
import sys
import tempfile
import warnings

import numpy as np
from PIL import Image, ImageOps

import media_corpus

warnings.simplefilter("ignore")

PUBLISHED = {"size": {"longest_edge": 16777216, "shortest_edge": 65536}, "patch_size": 16,
             "temporal_patch_size": 2, "merge_size": 2, "image_mean": [0.5, 0.5, 0.5],
             "image_std": [0.5, 0.5, 0.5], "image_processor_type": "Qwen2VLImageProcessorFast"}
SMALL = PUBLISHED | {"size": {"longest_edge": 262144, "shortest_edge": 4096}}
CLASS_DEFAULTS = {"image_processor_type": "Qwen2VLImageProcessor"}
UNSCALED = SMALL | {"do_rescale": False, "image_mean": [3.0, 100.5, 7.25]}
SCALED_ONLY = SMALL | {"do_normalize": False, "rescale_factor": 0.1, "merge_size": 1}
# A file is prepared under the first two or under the others; the largest images under the first.
CONFIGS = [PUBLISHED, SMALL, CLASS_DEFAULTS, UNSCALED, SCALED_ONLY]

SMOOTHING_MAX = 8


class Tool:
    def __init__(self, path):
        self.process = subprocess.Popen([path], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.file = tempfile.NamedTemporaryFile(prefix="nibble_media_")

    def put(self, data):
        self.file.seek(0)
        self.file.truncate()
        self.file.write(data)
        self.file.flush()

    def ask(self, work, **settings):
        line = json.dumps({"do": work, "path": self.file.name} | settings) + "\n"
        self.process.stdin.write(line.encode())
        self.process.stdin.flush()
        head = json.loads(self.process.stdout.readline())
        return head, self.process.stdout.read(head["bytes"])

    def close(self):
        self.process.stdin.close()
        return self.process.wait()


def white_behind_key(image):
    """transformers' convert_to_rgb of an RGB image on which Pillow left a transparent colour."""
    if image.info.get("transparency") is None:
        return image
    image = image.convert("RGBA")
    white = Image.new("RGBA", image.size, (255, 255, 255, 255))
    return Image.alpha_composite(white, image).convert("RGB")


def pillow_pixels(data):
    image = ImageOps.exif_transpose(Image.open(io.BytesIO(data))).convert("RGB")
    return np.array(white_behind_key(image))


class Comparison:
    def __init__(self, tool, processors):
        self.tool, self.processors = tool, processors
        self.files = self.patches = 0
        self.faults = set()
        self.differing = {}  # name -> largest difference

    def fault(self, name, words):
        self.faults.add(name)
        print(f"FAIL {name}: {words}")

    def pixels(self, name, data):
        """Nibble's pixels, compared with Pillow's; None if there are none."""
        head, raw = self.tool.ask("decode")
        if "error" in head:
            return self.fault(name, head["error"])
        mine = np.frombuffer(raw, np.uint8).reshape(head["height"], head["width"], 3)
        told, _ = self.tool.ask("size", config=PUBLISHED)
        if (told.get("width"), told.get("height")) != (head["width"], head["height"]):
            self.fault(name, f"its headers say {told}, its pixels {head}")
        theirs = pillow_pixels(data)
        if mine.shape != theirs.shape:
            return self.fault(name, f"shape {mine.shape}, Pillow's {theirs.shape}")
        worst = int(np.abs(mine.astype(int) - theirs.astype(int)).max())
        if 0 < worst <= SMOOTHING_MAX and name.startswith("jpeg-unfinished/"):
            self.differing[name] = worst
        elif worst:
            self.fault(name, f"differs from Pillow by {worst}")
        return mine

    def rows(self, name, config, image):
        head, raw = self.tool.ask("patches", config=config)
        if "error" in head:
            return self.fault(name, head["error"])
        theirs = self.processors(config)(images=image)
        mine = np.frombuffer(raw, np.float32)
        expected = np.asarray(theirs["pixel_values"], dtype=np.float32)
        grid = np.asarray(theirs["image_grid_thw"]).tolist()[0]
        self.patches += len(expected)
        if head["grid"] != grid:
            return self.fault(name, f"grid {head['grid']}, transformers' {grid}")
        told, _ = self.tool.ask("size", config=config)
        if told.get("grid") != grid:
            self.fault(name, f"its headers promise {told}")
        if mine.tobytes() != expected.tobytes():
            worst = np.abs(mine.reshape(expected.shape) - expected).max()
            self.fault(name, f"patches differ from transformers' by {worst}")

    def image(self, number, name, data):
        self.tool.put(data)
        self.files += 1
        pixels = self.pixels(name, data)
        if pixels is None or not self.processors:
            return
        from transformers.image_utils import load_image
        image = load_image(self.tool.file.name)
        if name in self.differing:
            image = Image.fromarray(pixels)
        configs = CONFIGS[:1] if name.startswith("large/") else (
            CONFIGS[:2] if number % 2 else CONFIGS[2:])
        for config in configs:
            self.rows(name, config, image)


def processors():
    from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil
    made = {}

    def of(config):
        key = json.dumps(config)
        if key not in made:
            settings = {k: v for k, v in config.items() if k != "image_processor_type"}
            made[key] = Qwen2VLImageProcessorPil(**settings)
        return made[key]
    return of


def main():
    words = sys.argv[1:]
    flags = {w for w in words if w.startswith("--")}
    paths = [w for w in words if w not in flags]
    if len(paths) != 1 or flags - {"--decode-only", "--small"}:
        sys.exit(__doc__)
    tool = Tool(pathlib.Path(paths[0]))
    comparison = Comparison(tool, None if "--decode-only" in flags else processors())
    for number, (name, data) in enumerate(media_corpus.files("--small" not in flags)):
        comparison.image(number, name, data)
    if tool.close() != 0:
        comparison.fault("the tool", "did not end well")
    for name, worst in sorted(comparison.differing.items()):
        print(f"{name}: differs from Pillow {Image.__version__} by at most {worst}")
    assert comparison.files >= 200, comparison.files
    print(f"{comparison.files} files, {comparison.patches} patches compared")
    print(f"{comparison.files - len(comparison.faults)} passed, {len(comparison.faults)} failed")
    sys.exit(bool(comparison.faults))


if __name__ == "__main__":
    main()
