"""A baseline JPEG encoder for chroma samplings that Pillow cannot write.

Written from ITU-T T.81; slow, with Huffman codes of one length each. It makes files for decoders
to agree on, not good ones.
"""

import struct

import numpy as np

ZIGZAG = sorted(range(64), key=lambda i: (i // 8 + i % 8,
                                          (i // 8 if (i // 8 + i % 8) % 2 else i % 8)))
DC_SYMBOLS = list(range(12))  # codes of 4 bits
AC_SYMBOLS = [0x00, 0xF0] + [run << 4 | size for run in range(16) for size in range(1, 11)]
STEP = 6  # every coefficient is divided by it


def segment(marker, data):
    return bytes([0xFF, marker]) + struct.pack(">H", len(data) + 2) + data


def huffman_table(kind, length, symbols):
    counts = [len(symbols) if i == length else 0 for i in range(1, 17)]
    return segment(0xC4, bytes([kind]) + bytes(counts) + bytes(symbols))


def cosines():
    k, n = np.mgrid[0:8, 0:8]
    scale = np.where(k == 0, np.sqrt(1 / 8), 0.5)
    return scale * np.cos((2 * n + 1) * k * np.pi / 16)


class Bits:
    def __init__(self):
        self.text = []

    def put(self, value, count):
        if count:
            self.text.append(format(value, f"0{count}b"))

    def put_signed(self, value, size):
        self.put(value if value >= 0 else value + (1 << size) - 1, size)

    def stuffed(self):
        text = "".join(self.text)
        text += "1" * (-len(text) % 8)
        data = int(text, 2).to_bytes(len(text) // 8, "big")
        return data.replace(b"\xff", b"\xff\0")


def put_block(bits, block, before):
    """Writes one block of quantized coefficients; returns its first."""
    values = [int(v) for v in block.ravel()[ZIGZAG]]
    size = abs(values[0] - before).bit_length()
    bits.put(DC_SYMBOLS.index(size), 4)
    bits.put_signed(values[0] - before, size)
    run = 0
    for value in values[1:]:
        if value == 0:
            run += 1
            continue
        while run > 15:
            bits.put(AC_SYMBOLS.index(0xF0), 8)
            run -= 16
        size = abs(value).bit_length()
        bits.put(AC_SYMBOLS.index(run << 4 | size), 8)
        bits.put_signed(value, size)
        run = 0
    if run:
        bits.put(AC_SYMBOLS.index(0x00), 8)
    return values[0]


def blocks_of(plane, across, down):
    """[rows of blocks, columns of blocks, 8, 8] quantized coefficients; edges repeat."""
    height, width = plane.shape
    plane = np.pad(plane, ((0, 8 * down - height), (0, 8 * across - width)), mode="edge")
    tiles = plane.reshape(down, 8, across, 8).transpose(0, 2, 1, 3) - 128.0
    basis = cosines()
    return np.rint(basis @ tiles @ basis.T / STEP).astype(int)


def ycbcr(rgb):
    r, g, b = (rgb[..., i].astype(np.float64) for i in range(3))
    y = 0.299 * r + 0.587 * g + 0.114 * b
    return [y, 128 + 0.564 * (b - y), 128 + 0.713 * (r - y)]


def encode(rgb, factors):
    """`factors`: per component (horizontal, vertical) sampling factors; the largest is whole."""
    height, width = rgb.shape[:2]
    most = [max(f[i] for f in factors) for i in range(2)]
    columns, rows = -(-width // (8 * most[0])), -(-height // (8 * most[1]))
    blocks = []
    for plane, (h, v) in zip(ycbcr(rgb), factors):
        step_x, step_y = most[0] // h, most[1] // v
        plane = np.pad(plane, ((0, -height % step_y), (0, -width % step_x)), mode="edge")
        plane = plane.reshape(plane.shape[0] // step_y, step_y, -1, step_x).mean(axis=(1, 3))
        blocks.append(blocks_of(plane, columns * h, rows * v))
    bits, before = Bits(), [0, 0, 0]
    for row in range(rows):
        for column in range(columns):
            for c, (h, v) in enumerate(factors):
                for y in range(row * v, row * v + v):
                    for x in range(column * h, column * h + h):
                        before[c] = put_block(bits, blocks[c][y, x], before[c])
    frame = struct.pack(">BHHB", 8, height, width, 3) + b"".join(
        bytes([c + 1, h << 4 | v, 0]) for c, (h, v) in enumerate(factors))
    return (b"\xff\xd8" + segment(0xE0, b"JFIF\0\1\1\0\0\1\0\1\0\0") +
            segment(0xDB, b"\0" + bytes([STEP]) * 64) + segment(0xC0, frame) +
            huffman_table(0x00, 4, DC_SYMBOLS) + huffman_table(0x10, 8, AC_SYMBOLS) +
            segment(0xDA, b"\3\1\0\2\0\3\0\0\x3f\0") + bits.stuffed() + b"\xff\xd9")
