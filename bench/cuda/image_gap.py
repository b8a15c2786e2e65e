#!/usr/bin/env python3
"""Measures the time that others wait between two tokens while large images come: percentiles of
the gaps of text clients, alone and beside a stream of images of 16 million pixels (16,384 tokens
each), all different. One image is asked about at a time, so the vision tower and prefill never
rest. Random weights of the given shape with its vision tower. Needs Python and Pillow.

    C=tests/golden/configs/qwen3.6-35b-a3b.json
    image_gap.py --config $C --nibble build/cuda/src/cli/nibble
"""
import argparse
import base64
import io
import json
import pathlib
import sys
import tempfile
import threading
import types
import urllib.error
import urllib.request

import load_shapes
from PIL import Image
from running_server import RunningServer  # load_shapes.py has put it on the path

EDGE = 4096
PEBBLE = pathlib.Path(__file__).resolve().parents[2] / "pebble" / "model"


def make_folder(config, folder):
    """Files for random weights whose tokenizer, Pebble's, knows the tokens of images."""
    load_shapes.dummy_folder(config, folder)
    shape = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    pebble = json.loads((PEBBLE / "config.json").read_text(encoding="utf-8"))
    for key in ("image_token_id", "video_token_id", "vision_start_token_id",
                "vision_end_token_id"):
        shape[key] = pebble[key]
    (folder / "config.json").write_text(json.dumps(shape), encoding="utf-8")
    vision = shape["vision_config"]
    processor = json.loads((PEBBLE / "preprocessor_config.json").read_text(encoding="utf-8"))
    processor.update({"patch_size": vision["patch_size"],
                      "temporal_patch_size": vision["temporal_patch_size"],
                      "merge_size": vision["spatial_merge_size"],
                      "size": {"shortest_edge": 65536, "longest_edge": EDGE * EDGE}})
    (folder / "preprocessor_config.json").write_text(json.dumps(processor), encoding="utf-8")


def image_url(number):
    """A picture that no other number has."""
    ramp = Image.linear_gradient("L").resize((EDGE, EDGE)).rotate(90 * (number % 4))
    picture = Image.merge("RGB", (ramp, ramp.rotate(90), ramp))
    picture.putpixel((number % EDGE, 0), (number % 256, number // 256 % 256, 7))
    out = io.BytesIO()
    picture.save(out, "PNG", compress_level=1)
    return "data:image/png;base64," + base64.b64encode(out.getvalue()).decode()


def ask(url, image):
    content = [{"type": "image_url", "image_url": {"url": image}}, {"type": "text", "text": "?"}]
    body = {"model": "m", "max_tokens": 1, "messages": [{"role": "user", "content": content}]}
    request = urllib.request.Request(f"{url}/v1/chat/completions", json.dumps(body).encode(),
                                     {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=120) as answer:
            return json.load(answer)["usage"]["prompt_tokens"]
    except urllib.error.HTTPError as error:
        raise RuntimeError(error.read().decode()) from error


class Stream(threading.Thread):
    """Asks about one image after the other until it is stopped."""

    def __init__(self, url, images):
        super().__init__(daemon=True)
        self.url, self.images = url, images
        self.ended, self.answered, self.error = False, 0, None

    def run(self):
        try:
            while not self.ended and self.answered < len(self.images):
                ask(self.url, self.images[self.answered])
                self.answered += 1
        except (OSError, RuntimeError) as error:
            self.error = error


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--config", required=True, help="config.json of the shape")
    parser.add_argument("--nibble", default="build/cuda/src/cli/nibble")
    parser.add_argument("--clients", type=int, default=8, help="clients that generate text")
    parser.add_argument("--tokens", type=int, default=2000, help="of each of their answers")
    parser.add_argument("--images", type=int, default=40, help="that are made beforehand")
    parser.add_argument("--flags", default="", help="more flags of serve")
    return parser.parse_args()


def compare(url, options, images, client):
    """Returns the results of the text clients alone and beside the images, and how many of these
    were answered meanwhile."""
    shape = (options.clients, 200, options.tokens)
    more = ("--num-prompts", options.clients)
    alone = load_shapes.bench(url, shape, client, *more)
    stream = Stream(url, images)
    stream.start()
    beside = load_shapes.bench(url, shape, client, *more)
    answered, stream.ended = stream.answered, True
    stream.join()
    if stream.error is not None:
        raise stream.error
    if answered == len(images):
        raise RuntimeError("all images were answered before the texts: raise --images")
    return alone, beside, answered


def main():
    options = parse_arguments()
    images = [image_url(number) for number in range(options.images)]
    client = types.SimpleNamespace(nibble=options.nibble, ids=(300, 1900), seed=0, limit=300,
                                   body={})
    flags = ["--load-format", "dummy:mixed-nvfp4-head",
             "--max-image-tokens", str(EDGE * EDGE // 1024),
             "--served-model-name", "m", *options.flags.split()]
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        make_folder(options.config, folder)
        with RunningServer(options.nibble, str(folder), flags) as server:
            tokens = ask(server.url, images.pop())
            print(f"an image is {tokens} tokens with its question")
            alone, beside, answered = compare(server.url, options, images, client)
    for what, run in (("alone", alone), (f"beside {answered} images", beside)):
        print(f"{what}: gap p50 / p95 / p99 {run['p50_itl_ms']:.1f} / {run['p95_itl_ms']:.1f} / "
              f"{run['p99_itl_ms']:.1f} ms, {run['duration']:.1f} s, {run['failed']} failed")
    return 0


if __name__ == "__main__":
    sys.exit(main())
