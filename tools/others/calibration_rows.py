"""Rows of {"input_ids": [...]} for both tools, as nibble reads them."""

import json

import torch


def read(path, count):
    with open(path, encoding="utf-8") as file:
        rows = [json.loads(line)["input_ids"] for line in file]
    return rows[:count]


def tensors(path, count):
    return [torch.tensor([ids]) for ids in read(path, count)]
