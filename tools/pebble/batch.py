"""Moves a packed batch to the device."""

import torch

import vision
from corpus import Batch
from model import Packed


def to_device(batch: Batch, device, dtype) -> Packed:
    bounds = torch.from_numpy(batch.bounds)
    lengths = bounds.diff()
    starts = torch.repeat_interleave(bounds[:-1], lengths)
    offset = torch.arange(len(batch.ids), dtype=torch.int32) - starts
    images = vision.patches(batch.pixels, device, dtype) if batch.pixels else None

    def move(x):
        return x.pin_memory().to(device, non_blocking=True) if device != "cpu" else x

    return Packed(move(torch.from_numpy(batch.ids)), move(torch.from_numpy(batch.weights)),
                  move(torch.from_numpy(batch.positions)), move(bounds), move(offset),
                  int(lengths.max()), images)
