"""Generated pictures: equal shapes of one colour on a grid of 32-pixel cells, no anti-aliasing.

`Picture` holds the parameters; `pixels()` and `png()` are pure functions of them.
"""

import base64
import io
import random
from dataclasses import asdict, dataclass

import numpy as np

from item import Item, assistant, user

CELL = 32
SHAPES = ["circle", "square", "triangle", "cross", "ring"]
INK = {"red": (220, 30, 30), "green": (30, 160, 60), "blue": (40, 70, 220),
       "yellow": (240, 210, 40), "purple": (140, 50, 170), "orange": (245, 140, 30),
       "black": (20, 20, 20), "white": (250, 250, 250)}
PAPER = (200, 200, 205)
COUNT_MAX = 5


@dataclass(frozen=True)
class Picture:
    rows: int            # cells
    columns: int
    shape: str
    colour: str
    radius: int          # pixels
    centres: tuple       # (y, x) of each shape, pixels

    def pixels(self) -> np.ndarray:
        """[H, W, 3] uint8."""
        out = np.empty((self.rows * CELL, self.columns * CELL, 3), np.uint8)
        out[:] = PAPER
        y, x = np.mgrid[: out.shape[0], : out.shape[1]]
        for cy, cx in self.centres:
            out[mask(self.shape, y - cy, x - cx, self.radius)] = INK[self.colour]
        return out

    def png(self) -> str:
        """Base64 of a PNG with a palette: a few hundred bytes."""
        from PIL import Image
        file = io.BytesIO()
        image = Image.fromarray(self.pixels()).quantize(4, dither=Image.Dither.NONE)
        image.save(file, "PNG", optimize=True)
        return base64.b64encode(file.getvalue()).decode()

    def parameters(self) -> dict:
        return asdict(self)


def mask(shape: str, dy, dx, r: int):
    """Which pixels the shape covers, relative to its centre."""
    square = np.maximum(abs(dy), abs(dx)) <= r
    if shape == "circle":
        return dy * dy + dx * dx <= r * r
    if shape == "ring":
        far = dy * dy + dx * dx
        return (far <= r * r) & (far >= (r * 0.55) ** 2)
    if shape == "square":
        return square
    if shape == "cross":
        return square & (np.minimum(abs(dy), abs(dx)) <= max(2, r // 3))
    return square & (2 * abs(dx) <= dy + r)  # triangle, tip up


def draw(rng: random.Random) -> Picture:
    rows, columns = rng.randint(2, 4), rng.randint(2, 4)
    count = rng.randint(1, min(COUNT_MAX, rows * columns))
    radius = rng.randint(8, 13)
    cells = rng.sample([(r, c) for r in range(rows) for c in range(columns)], count)
    slack = CELL // 2 - 1 - radius
    centres = tuple((r * CELL + CELL // 2 + rng.randint(-slack, slack),
                     c * CELL + CELL // 2 + rng.randint(-slack, slack)) for r, c in sorted(cells))
    return Picture(rows, columns, rng.choice(SHAPES), rng.choice(list(INK)), radius, centres)


QUESTIONS = {
    "colour": ["What colour is the shape in the picture?", "Which colour do you see?",
               "Tell me the colour."],
    "shape": ["What shape is in the picture?", "Which shape do you see?", "Tell me the shape."],
    "count": ["How many shapes are in the picture?", "Count the shapes.", "How many do you see?"],
}


def image_task(rng: random.Random, thinking: bool) -> Item:
    picture = draw(rng)
    kind = rng.choice(list(QUESTIONS))
    count = len(picture.centres)
    answers = {"colour": picture.colour, "shape": picture.shape, "count": str(count)}
    content = [{"type": "image"}, {"type": "text", "text": rng.choice(QUESTIONS[kind])}]
    messages = [{"role": "user", "content": content}]
    reasoning = f"I see {count} {picture.colour} {picture.shape}{'s' * (count > 1)}."
    reasoning = reasoning.replace("crosss", "crosses")
    return Item(f"image_{kind}", messages, answers[kind], thinking, reasoning, image=picture,
                split_key=str(picture))


def image_dialogue(rng: random.Random, thinking: bool) -> Item:
    """Training only: all three questions about one picture, so that each look teaches more."""
    item = image_task(rng, thinking)
    picture = item.image
    count = len(picture.centres)
    asked = {"colour": picture.colour, "shape": picture.shape, "count": str(count)}
    messages = item.messages
    kinds = list(asked)
    rng.shuffle(kinds)
    messages[0]["content"][1]["text"] = rng.choice(QUESTIONS[kinds[0]])
    for before, kind in zip(kinds, kinds[1:]):
        messages += [assistant(asked[before]), user(rng.choice(QUESTIONS[kind]))]
    item.answer = asked[kinds[-1]]
    item.all_turns = True
    return item
