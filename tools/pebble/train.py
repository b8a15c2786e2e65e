"""One stage of training: resumes from a checkpoint folder, runs N steps, writes it again.

The learning rate is warm-up, constant, then linear to zero; `--from-step`, `--steps` and
`--total-steps` place a stage on that line. `--size` starts from random weights, and `--seconds`
makes a stage of that time instead, of which the last `--fall-share` is the fall. With `--tasks`,
the loss and the answers of held-out items are printed too. Data workers are processes with their
own seeds.
"""

import argparse
import os
import shutil
import sys
import time
from pathlib import Path

import torch
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

import batch as batching
import config
import corpus
import held_out_loss
import model
import optimizer
import small_files
import weights


class Stream(IterableDataset):
    """Batches from one worker's own corpus; the seed names worker and starting step."""

    def __init__(self, args):
        self.args = args

    def __iter__(self):
        os.nice(10)  # the process that feeds the GPU goes first
        worker = get_worker_info().id
        seed = self.args.seed * 1_000_003 + self.args.from_step * 101 + worker
        source = corpus.Corpus(self.args.data, seed, self.args.context)
        for packed in map(batching.build, corpus.batches(source, self.args.tokens)):
            yield batching.as_arrays(packed)


def rate_at(step: int, seconds: float, args) -> float:
    """Share of the peak rate; every stage warms up, since its optimizer may be new."""
    if args.seconds:
        left = max(0.0, 1 - seconds / args.seconds) / args.fall_share
    else:
        left = (args.total_steps - step) / max(int(args.total_steps * args.fall_share), 1)
    return min(1.0, (step - args.from_step + 1) / args.warmup, left)


def losses(p, packed, args):
    """(objective, figures) of one batch."""
    embedded, hidden, rope, balance = model.trunk(p, packed)
    head = p["lm_head.weight"]
    targets, share = model.shifted(packed, 1)
    total = share.sum().clamp(min=1)
    main, right = model.token_loss(hidden, head, targets, share)
    drafted, more = model.mtp(p, packed, embedded, hidden, rope)
    targets, draft_share = model.shifted(packed, 2)
    draft, draft_right = model.token_loss(drafted, head, targets, draft_share)
    draft_total = draft_share.sum().clamp(min=1)
    objective = main / total + args.mtp_weight * draft / draft_total
    objective = objective + args.balance_weight * (balance + more)
    figures = torch.stack([main / total, right / total, draft / draft_total,
                           draft_right / draft_total,
                           (balance + more) / (model.layer_count(p) + 1)])
    return objective, figures.detach()


def start(args):
    """Masters, leaves and optimizer, from the folder's weights and, if there, its state file."""
    if args.size:
        small_files.write_files(args.out, args.data / "chat_template.jinja", args.size)
        begin = weights.fresh(args.seed, config.text_config(args.size))
    else:
        begin = weights.load(args.model)
    masters = {n: t.to(args.device) for n, t in begin.items()}
    state_file = args.state and Path(args.state)
    resumed = torch.load(state_file) if state_file and state_file.exists() else None
    if resumed:
        masters = resumed["masters"]
    dtype = torch.bfloat16 if args.device == "cuda" else torch.float32
    leaves = {n: t.to(dtype, copy=True).requires_grad_() for n, t in masters.items()}
    chosen = optimizer.Optimizer(masters, leaves, args.decay)
    if resumed:
        chosen.restore(resumed["optimizer"])
    return masters, leaves, chosen, dtype


def parse_args():
    parser = argparse.ArgumentParser(description=__doc__)
    begin = parser.add_mutually_exclusive_group(required=True)
    begin.add_argument("--model", type=Path, help="checkpoint folder to start from")
    begin.add_argument("--size", choices=list(config.SIZES), help="random weights to start from")
    parser.add_argument("--out", type=Path, required=True, help="folder to write")
    parser.add_argument("--data", type=Path, help="folder with tokenizer and template (= model)")
    parser.add_argument("--tasks", type=Path, help="folder of held-out items")
    parser.add_argument("--state", help="file for FP32 masters and optimizer state")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--tokens", type=int, default=65536, help="in a batch")
    parser.add_argument("--context", type=int, default=1024, help="longest document")
    parser.add_argument("--from-step", type=int, default=0)
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--total-steps", type=int, default=1000)
    parser.add_argument("--seconds", type=float, help="length of the stage, instead of steps")
    parser.add_argument("--seconds-max", type=float, default=1e9, help="stop early, state saved")
    parser.add_argument("--warmup", type=int, default=200)
    parser.add_argument("--fall-share", type=float, default=0.5)
    parser.add_argument("--adam-rate", type=float, default=3e-3)
    parser.add_argument("--muon-rate", type=float, default=5e-3)
    parser.add_argument("--decay", type=float, default=0.05)
    parser.add_argument("--mtp-weight", type=float, default=0.3)
    parser.add_argument("--balance-weight", type=float, default=0.003)
    parser.add_argument("--workers", type=int, default=8)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--no-compile", action="store_true")
    args = parser.parse_args()
    args.data = args.data or args.model
    if args.data is None:
        parser.error("--size needs --data, a folder with tokenizer and template")
    if args.seconds:
        args.steps, args.seconds_max = sys.maxsize, args.seconds
    return args


def tell(step, figures, speed, seconds) -> None:
    values = [f"{v:.4f}" for v in figures.tolist()]
    print(f"step {step} loss {values[0]} right {values[1]} draft {values[2]} right {values[3]} "
          f"balance {values[4]} {speed / 1e3:.0f} ktok/s {seconds:.0f} s", flush=True)


def finish(args, masters, chosen) -> None:
    """Writes the checkpoint folder, small files included, and the state to go on from."""
    weights.save(masters, args.out)
    for file in args.data.iterdir():
        if not file.name.startswith("model") and not (args.out / file.name).exists():
            shutil.copyfile(file, args.out / file.name)
    if args.state:
        torch.save({"masters": masters, "optimizer": chosen.state()}, args.state)


def main() -> None:
    args = parse_args()
    torch.set_num_threads(1)  # host-side work is small; the cores belong to the data workers
    if not args.no_compile:
        model.compile_blocks()
    masters, leaves, chosen, dtype = start(args)
    loader = iter(DataLoader(Stream(args), batch_size=None, num_workers=args.workers,
                             prefetch_factor=8, collate_fn=lambda x: x))
    held_out = args.tasks and held_out_loss.HeldOut(args, dtype)
    begun, since, seen = time.time(), time.time(), 0
    for step in range(args.from_step, args.from_step + args.steps):
        packed = batching.to_device(batching.from_arrays(next(loader)), args.device, dtype)
        objective, figures = losses(leaves, packed, args)
        objective.backward()
        rate = rate_at(step, time.time() - begun, args)
        chosen.step(args.adam_rate * rate, args.muon_rate * rate)
        seen += args.tokens
        if step < args.from_step + 3 or step % 100 == 99:
            tell(step + 1, figures, seen / (time.time() - since), time.time() - begun)
            if held_out and step % 300 == 299:
                print(held_out.measured(leaves), flush=True)
            since, seen = time.time(), 0
        if time.time() - begun > args.seconds_max:
            break
    if held_out:
        print(held_out.measured(leaves))
    finish(args, masters, chosen)
    print(f"stopped after step {step + 1}, {time.time() - begun:.0f} s")


if __name__ == "__main__":
    main()
