"""Pebble's special tokens and shapes: config.json in the released Qwen3.6 layout.

SIZES names Pebble and two more models of its vocabulary, tasks and head sizes, which are not
shipped.
"""

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
}
MIXTURE = {
    "num_experts": 16,
    "num_experts_per_tok": 4,
    "moe_intermediate_size": 64,
    "shared_expert_intermediate_size": 64,
    "router_aux_loss_coef": 0.001,
}

# These keys differ between sizes; a dense model has an intermediate_size.
SIZES = {
    "pebble": MIXTURE,
    "mixture": MIXTURE | {
        "hidden_size": 192, "num_attention_heads": 6, "linear_num_key_heads": 6,
        "linear_num_value_heads": 12, "num_experts": 24, "moe_intermediate_size": 48,
        "shared_expert_intermediate_size": 48},
    "dense": {"intermediate_size": 768},
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


def text_config(size: str) -> dict:
    text = TEXT | SIZES[size] | {"use_cache": True}
    if "intermediate_size" in text:
        text["model_type"] = "qwen3_5_text"
    return text


def model_config(size: str) -> dict:
    """config.json."""
    text = text_config(size)
    vision = VISION | {"out_hidden_size": text["hidden_size"]}
    model = MODEL | {"text_config": text, "vision_config": vision}
    if "intermediate_size" in text:
        model["architectures"] = ["Qwen3_5ForConditionalGeneration"]
        model["model_type"] = vision["model_type"] = "qwen3_5"
    return model
