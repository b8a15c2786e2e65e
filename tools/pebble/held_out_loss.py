"""The loss of held-out chats and prose during training, and how many answers come out right."""

import torch

import batch as batching
import corpus
import model
from held_out_items import held_out_items


class HeldOut:
    """The items of the split that evaluation does not use, as one batch of training's size."""

    def __init__(self, args, dtype):
        items, every = held_out_items(args.data, args.tasks, "validation"), 1
        while sum(len(ids) for ids, _ in items[::every]) > args.tokens:
            every += 1
        self.documents = items[::every]
        packed = corpus.pack([(ids, [0.0] * (answer or 1) + [1.0] * (len(ids) - (answer or 1)),
                               None) for ids, answer in self.documents], args.tokens)
        self.packed = batching.to_device(batching.build(packed), args.device, dtype)

    def measured(self, p) -> str:
        """One line. Gradients stay on and are dropped, as the compiled parts are those of training.

        An answer is right if every token of it is the most probable one after those before it."""
        hidden = model.trunk(p, self.packed)[1].detach()
        targets, _ = model.shifted(self.packed, 1)
        logits = (hidden @ p["lm_head.weight"].detach().T).float()
        losses = torch.nn.functional.cross_entropy(logits, targets, reduction="none")
        right = logits.argmax(-1) == targets
        sums, tokens, answers = {True: 0.0, False: 0.0}, {True: 0, False: 0}, []
        bounds = self.packed.bounds.host.tolist()
        for (_, answer), begin, end in zip(self.documents, bounds, bounds[1:]):
            part = slice(begin + (answer or 1) - 1, end - 1)
            sums[answer is None] += losses[part].sum().item()
            tokens[answer is None] += end - 1 - part.start
            if answer is not None:
                answers.append(right[part].all().item())
        return (f"held out: loss of answers {sums[False] / tokens[False]:.4f}, of prose "
                f"{sums[True] / tokens[True]:.4f}, answers right {sum(answers)} of {len(answers)}")
