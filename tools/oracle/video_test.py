"""Compares the arithmetic of videos in src/media with transformers' Qwen3VLVideoProcessor.

Usage: video_test.py TOOL | --write. TOOL is nibble_media_tool. Which frames are taken, the times in
the prompt and the grid, over many lengths, rates and sizes; and the rows of some videos, in every
bit. transformers refuses a video of one frame; here it is compared with one of two equal ones. Some
cases are in tests/golden/media/videos.json, which --write writes and the other form checks.
"""

import json
import pathlib
import random
import sys
import warnings
import zlib

import numpy as np

import media_corpus
from media_test import Tool

warnings.simplefilter("ignore")

PUBLISHED = {"size": {"longest_edge": 25165824, "shortest_edge": 4096}, "patch_size": 16,
             "temporal_patch_size": 2, "merge_size": 2, "image_mean": [0.5, 0.5, 0.5],
             "image_std": [0.5, 0.5, 0.5], "video_processor_type": "Qwen3VLVideoProcessor"}
SMALL = PUBLISHED | {"size": {"longest_edge": 300000, "shortest_edge": 4096}}
CAPPED = SMALL | {"cap_pixels_per_frame": True, "max_video_tokens": 16, "fps": 0.7,
                  "max_frames": 50}
OTHER = {"image_mean": [0.4, 0.5, 0.6], "image_std": [0.2, 0.3, 0.25], "fps": 3, "min_frames": 6}
PLAIN = SMALL | {"do_normalize": False}
FLOORED = {"cap_pixels_per_frame": True,
           "size": {"longest_edge": 900000, "shortest_edge": 800000}}
CONFIGS = [PUBLISHED, SMALL, CAPPED, OTHER, PLAIN, FLOORED]

GOLDENS = pathlib.Path(__file__).resolve().parents[2] / "tests/golden/media/videos.json"


def processor(config):
    from transformers.models.qwen3_vl.video_processing_qwen3_vl import Qwen3VLVideoProcessor
    return Qwen3VLVideoProcessor(**{k: v for k, v in config.items()
                                    if k != "video_processor_type"})


def sampled(theirs, frames, fps, width, height):
    """Indices, times as texts, grid; None where transformers refuses."""
    from transformers.models.qwen3_vl.processing_qwen3_vl import Qwen3VLProcessor
    from transformers.video_utils import VideoMetadata
    metadata = VideoMetadata(total_num_frames=frames, fps=fps, height=height, width=width)
    indices = theirs.sample_frames(metadata).tolist()
    times = Qwen3VLProcessor._calculate_timestamps(None, list(indices), fps, 2)
    count = max(2, len(indices))
    try:
        patches = theirs.get_num_of_video_patches(count, height, width)
    except ValueError:
        return None
    return indices, [f"{t:.1f}" for t in times], patches


def drawn(rng):
    frames = rng.choice([1, 2, 3, 4, 5, 7, 30, 31, 100, 1000, 99999, rng.randint(1, 5000)])
    fps = rng.choice([1.0, 2.0, 23.976, 24.0, 25.0, 29.97002997, 30.0, 60.0, 0.5, 1000.0,
                      rng.uniform(0.1, 200)])
    width, height = rng.choice([(640, 360), (1920, 1080), (31, 7), (100, 3000), (1, 300), (16, 16),
                                (rng.randint(1, 2000), rng.randint(1, 2000))])
    return frames, fps, width, height


def compare_sampling(tool, config, theirs, rng):
    frames, fps, width, height = drawn(rng)
    head, _ = tool.ask("sampling", frames=frames, fps=fps, width=width, height=height,
                       config=config)
    expected = sampled(theirs, frames, fps, width, height)
    words = f"{frames} frames at {fps}, {width} x {height}"
    if expected is None:
        return "" if "error" in head else f"{words}: {head}, but transformers refuses"
    if "error" in head:
        return f"{words}: {head['error']}"
    t, h, w = head["grid"]
    found = (head["indices"], head["times"], t * h * w)
    return "" if found == expected else f"{words}: {found} instead of {expected}"


def their_rows(theirs, frames):
    import torch
    if len(frames) == 1:
        frames = np.repeat(frames, 2, axis=0)
    video = torch.from_numpy(frames).permute(0, 3, 1, 2)
    found = theirs(videos=[video], do_sample_frames=False, return_tensors="pt")
    return (found["pixel_values_videos"].numpy().astype(np.float32),
            found["video_grid_thw"][0].tolist())


def compare_rows(tool, config, theirs, case):
    count, width, height = case
    frames = np.stack([media_corpus.picture(100 + i, width, height) for i in range(count)])
    frames = frames.astype(np.uint8)
    tool.put(frames.tobytes())
    head, raw = tool.ask("video", width=width, height=height, config=config)
    if "error" in head:
        return f"{case}: {head['error']}"
    rows, grid = their_rows(theirs, frames)
    if head["grid"] != grid:
        return f"{case}: grid {head['grid']} instead of {grid}"
    if raw != rows.tobytes():
        worst = np.abs(np.frombuffer(raw, np.float32).reshape(rows.shape) - rows).max()
        return f"{case}: rows differ by {worst}"
    return ""


ROWS = [(1, 64, 48), (2, 100, 80), (3, 61, 47), (4, 320, 240), (5, 16, 200), (8, 640, 360),
        (7, 30, 30), (2, 128, 64), (3, 200, 1), (4, 90, 300)]


def golden_sampling(config, rng):
    frames, fps, width, height = drawn(rng)
    case = {"config": config, "frames": frames, "fps": fps, "width": width, "height": height}
    expected = sampled(processor(config), frames, fps, width, height)
    if expected is None:
        return case | {"refused": True}
    indices, times, patches = expected
    return case | {"count": len(indices), "indices": zlib.crc32(np.array(indices).tobytes()),
                   "times": zlib.crc32(" ".join(times).encode()), "patches": patches}


def golden_rows(config, case):
    """Byte i of frame f is bits 16 to 23 of i * i * 2654435761 + i * 40503 + f * 1234577."""
    count, width, height = case
    i = np.arange(width * height * 3, dtype=np.uint64)
    frames = np.stack([((i * i * 2654435761 + i * 40503 + f * 1234577) >> 16).astype(np.uint8)
                       for f in range(count)]).reshape(count, height, width, 3)
    rows, grid = their_rows(processor(config), frames)
    return {"config": config, "frames": count, "width": width, "height": height, "grid": grid,
            "rows": zlib.crc32(rows.tobytes())}


def goldens():
    rng = random.Random(6)
    small = [case for case in ROWS if case[1] * case[2] < 10000]
    lines = {"sampling": [golden_sampling(c, rng) for c in CONFIGS for _ in range(20)],
             "rows": [golden_rows(CONFIGS[1 + i % 4], case) for i, case in enumerate(small)]}
    parts = [f"{json.dumps(key)}: [\n" + ",\n".join(json.dumps(x) for x in lines[key]) + "\n]"
             for key in lines]
    return "{\n" + ",\n".join(parts) + "\n}\n"


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    if sys.argv[1] == "--write":
        GOLDENS.write_text(goldens())
        return
    assert GOLDENS.read_text() == goldens(), f"{GOLDENS}: transformers gives something else"
    tool = Tool(pathlib.Path(sys.argv[1]))
    rng = random.Random(5)
    passed = failed = 0
    for config in CONFIGS:
        theirs = processor(config)
        faults = [compare_sampling(tool, config, theirs, rng) for _ in range(400)]
        faults += [compare_rows(tool, config, theirs, case) for case in ROWS]
        for fault in filter(None, faults):
            print("FAIL", fault)
            failed += 1
        passed += sum(not fault for fault in faults)
    assert tool.close() == 0
    print(f"{passed} passed, {failed} failed")
    sys.exit(bool(failed))


if __name__ == "__main__":
    main()
