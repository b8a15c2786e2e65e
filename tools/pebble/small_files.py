"""The small JSON files of a checkpoint: all that are not weights or the tokenizer's vocabulary."""

import json
import shutil
from pathlib import Path

from config import END_OF_TEXT, IM_END, SPECIAL_ID, SPECIAL_TOKENS, TEXT, model_config

GENERATION = {
    "bos_token_id": END_OF_TEXT,
    "do_sample": True,
    "eos_token_id": [IM_END, END_OF_TEXT],
    "pad_token_id": END_OF_TEXT,
    "temperature": 0.6,
    "top_k": 20,
    "top_p": 0.95,
    "transformers_version": "4.57.1",
}

# Pixel counts, not edges. Small minimum: Pebble's pictures are 64 to 128 pixels a side.
PATCHES = {
    "patch_size": 16,
    "temporal_patch_size": 2,
    "merge_size": 2,
    "image_mean": [0.5, 0.5, 0.5],
    "image_std": [0.5, 0.5, 0.5],
    "processor_class": "Qwen3VLProcessor",
}
IMAGE_PROCESSOR = {"size": {"longest_edge": 262144, "shortest_edge": 4096}, **PATCHES,
                   "image_processor_type": "Qwen2VLImageProcessorFast"}
VIDEO_PROCESSOR = {"size": {"longest_edge": 1048576, "shortest_edge": 4096}, **PATCHES,
                   "video_processor_type": "Qwen3VLVideoProcessor"}


def tokenizer_config(template: str) -> dict:
    """tokenizer_config.json as the released checkpoints write it."""
    added = {
        str(SPECIAL_ID[text]): {
            "content": text, "lstrip": False, "normalized": False, "rstrip": False,
            "single_word": False, "special": special,
        }
        for text, special in SPECIAL_TOKENS
    }
    return {
        "add_bos_token": False,
        "add_prefix_space": False,
        "added_tokens_decoder": added,
        "additional_special_tokens": [
            text for text, special in SPECIAL_TOKENS if special and text != "<|endoftext|>"
        ],
        "bos_token": None,
        "chat_template": template,
        "clean_up_tokenization_spaces": False,
        "eos_token": "<|im_end|>",
        "errors": "replace",
        "model_max_length": TEXT["max_position_embeddings"],
        "pad_token": "<|endoftext|>",
        "split_special_tokens": False,
        "tokenizer_class": "Qwen2Tokenizer",
        "unk_token": None,
        "image_token": "<|image_pad|>",
        "video_token": "<|video_pad|>",
        "vision_bos_token": "<|vision_start|>",
        "vision_eos_token": "<|vision_end|>",
    }


def write_json(path: Path, value: dict) -> None:
    path.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n")


def write_files(model_dir: Path, template: Path, size: str = "pebble") -> None:
    """Writes every small file of the checkpoint except tokenizer.json and the weights."""
    model_dir.mkdir(parents=True, exist_ok=True)
    write_json(model_dir / "config.json", model_config(size))
    write_json(model_dir / "generation_config.json", GENERATION)
    write_json(model_dir / "preprocessor_config.json", IMAGE_PROCESSOR)
    write_json(model_dir / "video_preprocessor_config.json", VIDEO_PROCESSOR)
    write_json(model_dir / "tokenizer_config.json", tokenizer_config(template.read_text()))
    target = model_dir / "chat_template.jinja"
    if template.resolve() != target.resolve():
        shutil.copyfile(template, target)
