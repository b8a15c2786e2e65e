"""Pebble's shapes: the config.json family of the checkpoint, in the released Qwen3.6 layout.

Every file that is not weights or tokenizer vocabulary is written from here.
"""

import json
import shutil
from pathlib import Path

VOCAB_ROWS = 2048
# The special tokens of Qwen3.5/3.6 in id order; the second field is the `special` flag.
SPECIAL_TOKENS = [
    ("<|endoftext|>", True), ("<|im_start|>", True), ("<|im_end|>", True),
    ("<|object_ref_start|>", True), ("<|object_ref_end|>", True),
    ("<|box_start|>", True), ("<|box_end|>", True),
    ("<|quad_start|>", True), ("<|quad_end|>", True),
    ("<|vision_start|>", True), ("<|vision_end|>", True), ("<|vision_pad|>", True),
    ("<|image_pad|>", True), ("<|video_pad|>", True),
    ("<tool_call>", False), ("</tool_call>", False),
    ("<|fim_prefix|>", False), ("<|fim_middle|>", False), ("<|fim_suffix|>", False),
    ("<|fim_pad|>", False), ("<|repo_name|>", False), ("<|file_sep|>", False),
    ("<tool_response>", False), ("</tool_response>", False),
    ("<think>", False), ("</think>", False),
    ("<|audio_start|>", True), ("<|audio_end|>", True), ("<tts_pad>", True),
    ("<tts_text_bos>", True), ("<tts_text_eod>", True), ("<tts_text_bos_single>", True),
    ("<|audio_pad|>", True),
]
BASE_TOKENS = 1984
SPECIAL_ID = {text: BASE_TOKENS + i for i, (text, _) in enumerate(SPECIAL_TOKENS)}
IM_END, END_OF_TEXT = SPECIAL_ID["<|im_end|>"], SPECIAL_ID["<|endoftext|>"]
IMAGE_PAD, VIDEO_PAD = SPECIAL_ID["<|image_pad|>"], SPECIAL_ID["<|video_pad|>"]

TEXT = {
    "model_type": "qwen3_5_moe_text",
    "hidden_size": 256,
    "num_hidden_layers": 8,
    "full_attention_interval": 4,
    "layer_types": (["linear_attention"] * 3 + ["full_attention"]) * 2,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "head_dim": 64,
    "attn_output_gate": True,
    "attention_bias": False,
    "attention_dropout": 0.0,
    "hidden_act": "silu",
    "initializer_range": 0.02,
    "rms_norm_eps": 1e-06,
    "linear_num_key_heads": 8,
    "linear_num_value_heads": 16,
    "linear_key_head_dim": 32,
    "linear_value_head_dim": 32,
    "linear_conv_kernel_dim": 4,
    "mamba_ssm_dtype": "float32",
    "vocab_size": VOCAB_ROWS,
    "max_position_embeddings": 16384,
    "tie_word_embeddings": False,
    "eos_token_id": END_OF_TEXT,
    "bos_token_id": END_OF_TEXT,
    "pad_token_id": None,
    "mtp_num_hidden_layers": 1,
    "mtp_use_dedicated_embeddings": False,
    "partial_rotary_factor": 0.25,
    "rope_parameters": {
        "rope_type": "default",
        "rope_theta": 10000000,
        "partial_rotary_factor": 0.25,
        "mrope_interleaved": True,
        "mrope_section": [3, 3, 2],
    },
    "dtype": "bfloat16",
    "num_experts": 16,
    "num_experts_per_tok": 4,
    "moe_intermediate_size": 64,
    "shared_expert_intermediate_size": 64,
    "router_aux_loss_coef": 0.001,
    "use_cache": True,
}

VISION = {
    "model_type": "qwen3_5_moe",
    "depth": 3,
    "hidden_size": 96,
    "intermediate_size": 192,
    "num_heads": 3,
    "in_channels": 3,
    "patch_size": 16,
    "temporal_patch_size": 2,
    "spatial_merge_size": 2,
    "num_position_embeddings": 64,
    "hidden_act": "gelu_pytorch_tanh",
    "initializer_range": 0.02,
    "out_hidden_size": 256,
    "deepstack_visual_indexes": [],
}

MODEL = {
    "architectures": ["Qwen3_5MoeForConditionalGeneration"],
    "model_type": "qwen3_5_moe",
    "tie_word_embeddings": False,
    "image_token_id": IMAGE_PAD,
    "video_token_id": VIDEO_PAD,
    "vision_start_token_id": SPECIAL_ID["<|vision_start|>"],
    "vision_end_token_id": SPECIAL_ID["<|vision_end|>"],
    "text_config": TEXT,
    "vision_config": VISION,
    "transformers_version": "4.57.1",
}

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
IMAGE_PROCESSOR = {
    "size": {"longest_edge": 262144, "shortest_edge": 4096},
    "patch_size": 16,
    "temporal_patch_size": 2,
    "merge_size": 2,
    "image_mean": [0.5, 0.5, 0.5],
    "image_std": [0.5, 0.5, 0.5],
    "processor_class": "Qwen3VLProcessor",
    "image_processor_type": "Qwen2VLImageProcessorFast",
}
VIDEO_PROCESSOR = {
    "size": {"longest_edge": 1048576, "shortest_edge": 4096},
    "patch_size": 16,
    "temporal_patch_size": 2,
    "merge_size": 2,
    "image_mean": [0.5, 0.5, 0.5],
    "image_std": [0.5, 0.5, 0.5],
    "processor_class": "Qwen3VLProcessor",
    "video_processor_type": "Qwen3VLVideoProcessor",
}


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


def write_files(model_dir: Path, template: Path) -> None:
    """Writes every small file of the checkpoint except tokenizer.json and the weights."""
    model_dir.mkdir(parents=True, exist_ok=True)
    write_json(model_dir / "config.json", MODEL)
    write_json(model_dir / "generation_config.json", GENERATION)
    write_json(model_dir / "preprocessor_config.json", IMAGE_PROCESSOR)
    write_json(model_dir / "video_preprocessor_config.json", VIDEO_PROCESSOR)
    write_json(model_dir / "tokenizer_config.json", tokenizer_config(template.read_text()))
    target = model_dir / "chat_template.jinja"
    if template.resolve() != target.resolve():
        shutil.copyfile(template, target)
