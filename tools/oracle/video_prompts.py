"""Writes tests/golden/media/video_prompts.json: prompts with videos, as token ids of transformers,
and the log-probabilities that it gives in F32 to the tokens of one.

Usage: video_prompts.py --write | --check. The checkpoint's own tokenizer, template and processors
(pebble/model) go through the pinned transformers' Qwen3VLProcessor, which gets frames without
content: only their number, rate and size matter to a prompt. transformers replaces <|video_pad|>
and leaves the template's <|vision_start|> and <|vision_end|> around all of a video; the ids that
are written are without that pair, as vLLM and earlier versions of transformers make them.
transformers refuses a video of one frame; here it gets the frame twice. The prompt with
log-probabilities has the frames of plain.mp4 (video_files.py).
"""

import itertools
import json
import pathlib
import sys
import warnings

import video_files

warnings.simplefilter("ignore")

ROOT = pathlib.Path(__file__).resolve().parents[2]
MODEL = ROOT / "pebble/model"
GOLDEN = ROOT / "tests/golden/media/video_prompts.json"
# The files of tests/golden/media/video: frames, frames a second, width, height.
FILES = {"plain.mp4": (40, 8.0, 64, 48), "turned.mp4": (40, 8.0, 48, 64),
         "one.mp4": (1, 8.0, 64, 48), "variable.mp4": (40, 160 / 49, 64, 48),
         "streamed.webm": (40, 8.0, 64, 48)}


def text(words):
    return {"type": "text", "text": words}


def video(name):
    return {"type": "video", "file": name}


def image(width, height):
    return {"type": "image", "size": [width, height]}


def user(*parts):
    return {"role": "user", "content": list(parts)}


CASES = [
    ([user(video("plain.mp4"), text("What is shown?"))], {}),
    ([user(text("Look (now):"), video("turned.mp4"), text("and"), image(100, 60),
           text(", then"), video("plain.mp4"))], {}),
    ([user(video("one.mp4"))], {}),
    ([user(text("uneven"), video("variable.mp4"))], {}),
    ([user(video("streamed.webm"), text("?"))], {"num_frames": 5}),
    ([user(video("plain.mp4"), text("?"))], {"fps": 0.5}),
    ([user(video("plain.mp4"), text("?"))], {"fps": 4, "max_pixels": 8192}),
    ([user(text("a"), video("plain.mp4")), {"role": "assistant", "content": "b"},
      user(text("c"), video("one.mp4"), text("d"))], {}),
]


def processor():
    from transformers import AutoTokenizer
    from transformers.models.qwen2_vl.image_processing_qwen2_vl import Qwen2VLImageProcessor
    from transformers.models.qwen3_vl.processing_qwen3_vl import Qwen3VLProcessor
    from transformers.models.qwen3_vl.video_processing_qwen3_vl import Qwen3VLVideoProcessor
    return Qwen3VLProcessor(Qwen2VLImageProcessor.from_pretrained(MODEL),
                            AutoTokenizer.from_pretrained(MODEL),
                            Qwen3VLVideoProcessor.from_pretrained(MODEL),
                            chat_template=(MODEL / "chat_template.jinja").read_text())


def frames_of(name):
    import torch
    from transformers.video_utils import VideoMetadata
    count, fps, width, height = FILES[name]
    frames = torch.zeros((max(2, count), 3, height, width), dtype=torch.uint8)
    indices = {"frames_indices": [0]} if count == 1 else {}
    return frames, VideoMetadata(total_num_frames=count, fps=fps, width=width, height=height,
                                 **indices)


def sampled(theirs, frames, metadata, fields):
    """The frames that are taken; so that videos of one frame may stand beside others."""
    if metadata.total_num_frames == 1:
        return frames
    rule = {key: fields[key] for key in ("fps", "num_frames") if key in fields}
    if "num_frames" in rule:  # the class takes it beside its own fps alone where that is absent
        theirs.video_processor.fps = None
    indices = theirs.video_processor.sample_frames(metadata, **rule)
    theirs.video_processor.fps = 2
    metadata.frames_indices = indices.tolist()
    return frames[indices]


def ids_of(theirs, messages, fields):
    from PIL import Image
    parts = [part for message in messages for part in message["content"]
             if isinstance(part, dict)]
    clips = [frames_of(part["file"]) for part in parts if part["type"] == "video"]
    images = [Image.new("RGB", part["size"]) for part in parts if part["type"] == "image"]
    metadata = [each for _, each in clips]
    frames = [sampled(theirs, each, about, fields) for each, about in clips]
    words = theirs.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    size = {}
    if "max_pixels" in fields:
        size["size"] = {"longest_edge": fields["max_pixels"],
                        "shortest_edge": theirs.video_processor.size["shortest_edge"]}
    found = theirs(text=[words], images=images or None, videos=frames,
                   videos_kwargs={"video_metadata": metadata, "do_sample_frames": False, **size})
    return found["input_ids"][0]


def without_outer_pair(ids, theirs):
    """Drops the vision_start before a time and the vision_end behind a video's last."""
    start, end = theirs.vision_start_token_id, theirs.vision_end_token_id
    pads = {theirs.image_token_id, theirs.video_token_id}
    kept, dropped = [], 0
    for at, token in enumerate(ids):
        outer = (token == start and ids[at + 1] not in pads) or (
            token == end and ids[at - 1] == end)
        dropped += outer
        if not outer:
            kept.append(token)
    return kept, dropped


def log_probabilities(theirs):
    """The prompt of the first case, of the second token on."""
    import torch
    from transformers import AutoModelForImageTextToText
    messages, fields = CASES[0]
    words = theirs.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    shown, metadata = frames_of("plain.mp4")
    shown = torch.from_numpy(video_files.frames(len(shown))).permute(0, 3, 1, 2)
    shown = sampled(theirs, shown, metadata, fields)
    found = theirs(text=[words], videos=[shown], return_tensors="pt",
                   videos_kwargs={"video_metadata": [metadata], "do_sample_frames": False})
    ids = torch.tensor([without_outer_pair(found["input_ids"][0].tolist(), theirs)[0]])
    model = AutoModelForImageTextToText.from_pretrained(MODEL, dtype=torch.float32).eval()
    with torch.no_grad():
        logits = model(input_ids=ids, pixel_values_videos=found["pixel_values_videos"],
                       video_grid_thw=found["video_grid_thw"],
                       mm_token_type_ids=torch.where(ids == theirs.video_token_id, 2, 0)).logits
    of_next = torch.log_softmax(logits[0, :-1].double(), -1).gather(1, ids[0, 1:, None])
    return [round(float(value), 5) for value in of_next[:, 0]]


def runs_of(ids):
    return [[token, len(list(group))] for token, group in itertools.groupby(ids)]


def golden():
    theirs = processor()
    cases = []
    for messages, fields in CASES:
        videos = sum(part["type"] == "video" for m in messages for part in m["content"]
                     if isinstance(part, dict))
        ids, dropped = without_outer_pair(ids_of(theirs, messages, fields), theirs)
        assert dropped == 2 * videos, (dropped, videos)
        cases.append({"messages": messages, "fields": fields, "runs": runs_of(ids)})
    cases[0]["log_probabilities"] = log_probabilities(theirs)
    files = {name: dict(zip(("frames", "fps", "width", "height"), facts))
             for name, facts in FILES.items()}
    return {"files": files, "cases": cases}


def text_of(made):
    lines = ",\n".join(json.dumps(case) for case in made["cases"])
    return '{\n"files": %s,\n"cases": [\n%s\n]\n}\n' % (json.dumps(made["files"]), lines)


def differs(made, kept):
    """True unless they are equal, numbers of the model to its rounding on other machines."""
    pairs = zip(made["cases"][0].pop("log_probabilities"),
                kept["cases"][0].pop("log_probabilities"), strict=True)
    return made != kept or max(abs(a - b) for a, b in pairs) > 1e-3


def main():
    if sys.argv[1:] == ["--write"]:
        GOLDEN.write_text(text_of(golden()))
    elif sys.argv[1:] == ["--check"]:
        if differs(golden(), json.loads(GOLDEN.read_text())):
            sys.exit(f"{GOLDEN} is not what transformers makes; write it anew")
        print(f"{len(CASES)} prompts are those of transformers")
    else:
        sys.exit(__doc__)


if __name__ == "__main__":
    main()
