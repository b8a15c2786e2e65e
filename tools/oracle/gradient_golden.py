#!/usr/bin/env python3
"""Writes tests/golden/gradients: gradients of the tiny models of tests/golden/model, by torch.

  gradient_golden.py            writes every case
  gradient_golden.py --check    computes again and compares with the files (./test --full)

A token y_t is drawn after every token of two sequences from the model's own distribution. A case
holds ids and labels y [T, I32], both sequences one after the other; `residual/I`, the gradient of
sum_t log p(y_t) in the input of layer I (the last: of the final norm) [T, D]; and for every linear
`square/NAME` [T], the squared length of the gradient of its output, zero for tokens that an expert
did not get. Read by src/quantize/gradient/gradient_golden_test.cc.
"""

import pathlib
import sys
import types

import numpy
import torch
from safetensors.numpy import load_file, save_file

import model_cases as cases
import model_golden

FOLDER = pathlib.Path(__file__).resolve().parents[2] / "tests" / "golden" / "gradients"
LENGTHS = (70, 20)  # a chunk of the delta rule is 64 tokens
NAMES = ["moe-fused", "dense-tied", "dense-yarn", "plain-moe-yarn"]


class Watched:
    """Outputs of linears and inputs of layers of one sequence, which keep their gradients."""

    def __init__(self, model):
        self.outputs = {}    # name -> output [T, N]
        self.experts = {}    # name -> (rows, output [R, N])
        self.residuals = {}  # layer -> [1, T, D]
        layers = model_layers(model)
        for index, layer in enumerate(layers):
            layer.register_forward_pre_hook(self._residual(index), with_kwargs=True)
            for name, module in layer.named_modules():
                self._watch(f"{index}.{name}", module)
        model.get_decoder().norm.register_forward_pre_hook(self._residual(len(layers)),
                                                           with_kwargs=True)
        self._watch("lm_head", model.lm_head)

    def _watch(self, name, module):
        kind = type(module).__name__
        if isinstance(module, torch.nn.Linear) or kind.endswith("TopKRouter"):
            module.register_forward_hook(self._output(name))
        elif kind.endswith("Experts"):
            module.forward = types.MethodType(self._run_experts(name), module)

    def _residual(self, index):
        def hook(_, args, kwargs):
            self.residuals[index] = args[0] if args else kwargs["hidden_states"]
            self.residuals[index].retain_grad()
        return hook

    def _output(self, name):
        def hook(_, __, output):
            logits = output[0] if isinstance(output, tuple) else output
            logits.retain_grad()
            self.outputs[name] = logits
        return hook

    def _run_experts(self, name):
        """The experts one by one, each product apart."""
        def forward(module, hidden, top_k_index, top_k_weights):
            total = torch.zeros_like(hidden)
            for expert in range(module.gate_up_proj.shape[0]):
                rows, places = torch.where(top_k_index == expert)
                gate_weight, up_weight = module.gate_up_proj[expert].chunk(2)
                kept = {"gate_proj": hidden[rows] @ gate_weight.T,
                        "up_proj": hidden[rows] @ up_weight.T}
                inner = torch.nn.functional.silu(kept["gate_proj"]) * kept["up_proj"]
                kept["down_proj"] = inner @ module.down_proj[expert].T
                for role, output in kept.items():
                    output.retain_grad()
                    self.experts[f"{name}.{expert}.{role}"] = (rows, output)
                weighted = kept["down_proj"] * top_k_weights[rows, places][:, None]
                total = total.index_add(0, rows, weighted)
            return total
        return forward

    def squares(self, length):
        """name -> [T]."""
        found = {name: output.grad.reshape(length, -1).square().sum(-1)
                 for name, output in self.outputs.items()}
        for name, (rows, output) in self.experts.items():
            found[name] = torch.zeros(length)
            if output.grad is not None:
                found[name][rows] = output.grad.square().sum(-1)
        return found


def model_layers(model):
    return model.get_decoder().layers


def load(name):
    built, _, _ = model_golden.build(name)
    model = type(built).from_pretrained(model_golden.ROOT / name, dtype=torch.float32).eval()
    return model.requires_grad_(False)


def one_sequence(name, ids, generator):
    model = load(name)
    watched = Watched(model)
    embedded = model.get_input_embeddings()(torch.tensor([ids])).requires_grad_()
    logits = model(inputs_embeds=embedded, use_cache=False).logits[0]
    labels = torch.multinomial(logits.detach().softmax(-1), 1, generator=generator)[:, 0]
    logits.log_softmax(-1).gather(1, labels[:, None]).sum().backward()
    return labels, logits.detach(), watched


def golden(name):
    generator = torch.Generator().manual_seed(7)
    text = model_golden.text_config(load(name))
    sequences = cases.sequences(text.vocab_size, LENGTHS, seed=len(name))
    parts = []
    for ids in sequences:
        labels, _, watched = one_sequence(name, ids, generator)
        part = {"ids": numpy.array(ids, "<i4"), "labels": labels.numpy().astype("<i4")}
        for layer, stream in watched.residuals.items():
            part[f"residual/{layer}"] = stream.grad[0].numpy()
        for linear, square in watched.squares(len(ids)).items():
            part[f"square/{linear}"] = square.numpy()
        parts.append(part)
    return {key: numpy.concatenate([part[key] for part in parts]) for key in parts[0]}


def write(name):
    FOLDER.mkdir(parents=True, exist_ok=True)
    tensors = golden(name)
    save_file(tensors, FOLDER / f"{name}.safetensors")
    (FOLDER / f"{name}.safetensors").chmod(0o644)
    print(f"{name}: {len(tensors)} tensors, {sum(t.nbytes for t in tensors.values())} bytes")


def check(name):
    stored, found = load_file(FOLDER / f"{name}.safetensors"), golden(name)
    worst = 0.0 if stored.keys() == found.keys() else numpy.inf
    for key in stored.keys() & found.keys():
        size = numpy.abs(stored[key].astype("f8")).max()
        difference = numpy.abs(stored[key].astype("f8") - found[key]).max()
        worst = max(worst, difference / size if size > 0 else difference)
    print(f"{'ok  ' if worst < 1e-3 else 'FAIL'} {name}: differs by {worst:.2e}")
    return worst < 1e-3


if __name__ == "__main__":
    sys.exit(cases.run_goldens(__doc__, NAMES, write, check))
