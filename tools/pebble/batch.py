"""From packed documents to tensors: built on the host (by a data worker), then moved.

Workers hand over plain arrays: passing tensors between processes costs a socket for each.
"""

import numpy as np
import torch

import vision
from config import IMAGE_PAD
from corpus import Batch
from delta import Bounds
from model import Packed


def build(batch: Batch) -> Packed:
    """All tensors on the host."""
    bounds = torch.from_numpy(batch.bounds)
    starts = torch.repeat_interleave(bounds[:-1], bounds.diff())
    ids = torch.from_numpy(batch.ids)
    return Packed(
        ids=ids, weights=torch.from_numpy(batch.weights),
        positions=torch.from_numpy(batch.positions), bounds=Bounds(bounds, bounds),
        offset=torch.arange(len(ids), dtype=torch.int32) - starts,
        image_rows=(ids == IMAGE_PAD).nonzero()[:, 0],
        images=vision.patches(batch.pixels) if batch.pixels else None)


def as_arrays(packed: Packed) -> tuple:
    """(fields of the batch, fields of its pictures) as numpy arrays, for another process."""
    def plain(x):
        return (x.host if isinstance(x, Bounds) else x).numpy()

    images = packed.images and {name: plain(x) for name, x in vars(packed.images).items()}
    return {name: plain(x) for name, x in vars(packed).items() if name != "images"}, images


def from_arrays(arrays: tuple) -> Packed:
    def tensor(name: str, x: np.ndarray):
        x = torch.from_numpy(x)
        return Bounds(x, x) if name == "bounds" else x

    fields, images = ({k: tensor(k, v) for k, v in part.items()} if part else None
                      for part in arrays)
    return Packed(**fields, images=images and vision.Patches(**images))


def to_device(packed: Packed, device, dtype) -> Packed:
    """The same on the device; pixel values become `dtype` in -1 .. 1."""
    def move(x):
        if device == "cpu":
            return x
        if isinstance(x, Bounds):
            return Bounds(move(x.host), x.host)
        return x.pin_memory().to(device, non_blocking=True)

    fields = {name: move(x) for name, x in vars(packed).items() if name != "images"}
    images = packed.images
    if images is not None:
        images = vision.Patches(**{name: move(x) for name, x in vars(images).items()})
        images.values = (images.values.float() / 127.5 - 1).to(dtype)
    return Packed(**fields, images=images)
