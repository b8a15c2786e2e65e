"""Trains the byte-level BPE tokenizer on the corpus's own text and writes the small files."""

import argparse
import json
import random
from pathlib import Path

from tokenizers import AddedToken, Regex, Tokenizer, decoders, normalizers, pre_tokenizers
from tokenizers import processors, trainers
from tokenizers.models import BPE

import config
import corpus
import small_files
from item import Item
from tasks_lists import SHORT
from tasks_world import prose

SPLIT = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}|"
         r" ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")


def empty_tokenizer() -> Tokenizer:
    tokenizer = Tokenizer(BPE(fuse_unk=False, byte_fallback=False))
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(SPLIT), behavior="isolated", invert=False),
        pre_tokenizers.ByteLevel(add_prefix_space=False, trim_offsets=False, use_regex=False),
    ])
    tokenizer.decoder = decoders.ByteLevel(add_prefix_space=False, trim_offsets=False,
                                           use_regex=False)
    tokenizer.post_processor = processors.ByteLevel(add_prefix_space=False, trim_offsets=False,
                                                    use_regex=False)
    return tokenizer


def texts(model_dir: Path, seed: int, documents: int):
    """Rendered documents without the markup tokens, which BPE never sees."""
    rng = random.Random(seed)
    template = corpus.chat_template(model_dir)
    makers = corpus.task_makers(512, SHORT)
    names, shares = list(makers), [share for share, _ in makers.values()]
    for _ in range(documents):
        if rng.random() < 0.15:
            yield prose(rng)
            continue
        name = rng.choices(names, shares)[0]
        item: Item = makers[name][1](rng, corpus.fixed_mode(name, rng.random() < 0.5))
        text = "".join(corpus.render(template, item))
        for mark, _ in config.SPECIAL_TOKENS:
            text = text.replace(mark, "\n")
        yield text


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model_dir", type=Path)
    parser.add_argument("--template", type=Path, required=True)
    parser.add_argument("--documents", type=int, default=12000)
    parser.add_argument("--seed", type=int, default=7)
    args = parser.parse_args()
    small_files.write_files(args.model_dir, args.template)
    tokenizer = empty_tokenizer()
    trainer = trainers.BpeTrainer(
        vocab_size=config.BASE_TOKENS, show_progress=False, min_frequency=2,
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()))
    tokenizer.train_from_iterator(texts(args.model_dir, args.seed, args.documents), trainer)
    if tokenizer.get_vocab_size() != config.BASE_TOKENS:
        raise SystemExit(f"only {tokenizer.get_vocab_size()} tokens: give more documents")
    tokenizer.add_tokens([AddedToken(text, special=special, normalized=False)
                          for text, special in config.SPECIAL_TOKENS])
    path = args.model_dir / "tokenizer.json"
    path.write_text(json.dumps(json.loads(tokenizer.to_str()), ensure_ascii=False, indent=1) + "\n")
    print(f"{tokenizer.get_vocab_size()} tokens in {path}")
