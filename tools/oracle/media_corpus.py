"""Odd images for the oracles of src/media.

Every mode, depth, layout and flag that JPEG, PNG, WebP and GIF files have, edges from 1 to 8,000
pixels, aspect ratios to 200. Deterministic: a name is always the same picture. Nothing here knows
the C++ code.

PNG and GIF files are put together by hand, because Pillow cannot write most kinds; pixels come from
random numbers over a smooth picture, so that filters, chroma and edges all matter.
"""

import io
import struct
import zlib

import numpy as np
from PIL import Image

import media_jpeg

ADAM7 = [(0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2),
         (0, 1, 1, 2)]  # first x, first y, step x, step y


def picture(seed, width, height, channels=3, levels=256):
    """[height, width, channels]: waves of some wavelengths, a sharp edge and noise."""
    rng = np.random.default_rng(seed)
    y, x = np.mgrid[0:height, 0:width].astype(np.float64)
    planes = []
    for _ in range(channels):
        a, b, c, d = rng.uniform(0.001, 1.2, 4)
        wave = np.sin(a * x + b * y) + np.sin(c * x * y / (width + height) + d * x)
        edge = 1.5 * ((x * rng.uniform(-1, 1) + y * rng.uniform(-1, 1)) > rng.uniform(-9, 9))
        noise = rng.normal(0, rng.choice([0.0, 0.1, 1.0]), (height, width))
        planes.append(wave + edge + noise)
    values = np.stack(planes, axis=-1)
    values = (values - values.min()) / max(np.ptp(values), 1e-9)
    return np.minimum((values * levels).astype(np.int64), levels - 1)


def chunk(kind, data):
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def packed_rows(samples, depth):
    """Rows of [height, width, channels] as PNG packs them, without the filter byte."""
    flat = samples.reshape(samples.shape[0], -1)
    if depth == 16:
        return [row.astype(">u2").tobytes() for row in flat]
    if depth == 8:
        return [row.astype(np.uint8).tobytes() for row in flat]
    bits = ((flat[:, :, None] >> np.arange(depth - 1, -1, -1)) & 1).reshape(flat.shape[0], -1)
    return [np.packbits(row.astype(np.uint8)).tobytes() for row in bits]


def png(samples, depth, color, extra=(), late=(), interlaced=False):
    """A PNG file of [height, width, channels] samples; `extra` chunks before the pixels, `late`
    ones behind them."""
    height, width = samples.shape[:2]
    if interlaced:
        passes = [samples[y::dy, x::dx] for x, y, dx, dy in ADAM7]
        rows = [row for part in passes if part.size for row in packed_rows(part, depth)]
    else:
        rows = packed_rows(samples, depth)
    pixels = zlib.compress(b"".join(b"\0" + row for row in rows), 1)
    header = struct.pack(">IIBBBBB", width, height, depth, color, 0, 0, int(interlaced))
    half = len(pixels) // 2
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) +
            b"".join(chunk(*c) for c in extra) + chunk(b"IDAT", pixels[:half]) +
            chunk(b"IDAT", pixels[half:]) + b"".join(chunk(*c) for c in late) +
            chunk(b"IEND", b""))


def saved(image, kind, **settings):
    out = io.BytesIO()
    image.save(out, kind, **settings)
    return out.getvalue()


def exif(orientation, endian="<", kind=3, count=1, prefix=b"", before=()):
    """An EXIF block whose first directory has entries `before` and the orientation."""
    value = struct.pack(endian + {3: "HH", 4: "I", 8: "hh", 9: "i", 1: "BBBB"}[kind],
                        orientation, *([0] * {3: 1, 4: 0, 8: 1, 9: 0, 1: 3}[kind]))
    entries = [struct.pack(endian + "HHI", tag, 3, 1) + struct.pack(endian + "HH", value_, 0)
               for tag, value_ in before]
    entries.append(struct.pack(endian + "HHI", 274, kind, count) + value)
    mark = b"II*\0" if endian == "<" else b"MM\0*"
    return (prefix + mark + struct.pack(endian + "I", 8) +
            struct.pack(endian + "H", len(entries)) + b"".join(entries) + b"\0\0\0\0")


def xmp(orientation, element=False):
    text = (f"<tiff:Orientation>{orientation}</tiff:Orientation>" if element
            else f'<rdf:Description tiff:Orientation="{orientation}"/>')
    return f"<x:xmpmeta>{text}</x:xmpmeta>".encode()


def app1(jpeg, data):
    """The JPEG file with another APP1 segment behind its start."""
    return jpeg[:2] + b"\xff\xe1" + struct.pack(">H", len(data) + 2) + data + jpeg[2:]


SIZES = [(1, 1), (2, 1), (1, 3), (7, 5), (15, 16), (16, 15), (17, 33), (31, 47), (32, 32), (33, 64),
         (48, 80), (63, 65), (100, 100), (120, 31), (200, 1), (1, 200), (400, 2), (3, 600),
         (257, 129), (320, 240), (511, 1), (1, 511)]


def jpeg_files():
    seed = 1000
    for width, height in SIZES:
        if max(width, height) > 200 * min(width, height):
            continue
        seed += 1
        image = Image.fromarray(picture(seed, width, height).astype(np.uint8))
        yield f"jpeg/420-{width}x{height}", saved(image, "JPEG", quality=85, subsampling=2)
    image = Image.fromarray(picture(1, 93, 71).astype(np.uint8))
    for subsampling in (0, 1, 2):
        for progressive in (False, True):
            for quality in (1, 30, 75, 95, 100):
                yield (f"jpeg/sub{subsampling}-progressive{int(progressive)}-q{quality}",
                       saved(image, "JPEG", quality=quality, subsampling=subsampling,
                             progressive=progressive))
    yield "jpeg/optimised", saved(image, "JPEG", optimize=True)
    yield "jpeg/restarts", saved(image, "JPEG", restart_marker_blocks=3)
    yield "jpeg/restart-rows", saved(image, "JPEG", restart_marker_rows=1, progressive=True)
    yield "jpeg/rgb-kept", saved(image, "JPEG", keep_rgb=True, quality=80)
    yield "jpeg/comment", saved(image, "JPEG", comment=b"x" * 3000)
    yield "jpeg/profile", saved(image, "JPEG", icc_profile=b"not a profile" * 20000)
    for progressive in (False, True):
        grey = Image.fromarray(picture(2, 50, 77, 1)[..., 0].astype(np.uint8))
        yield f"jpeg/grey-progressive{int(progressive)}", saved(grey, "JPEG",
                                                                progressive=progressive)
        cmyk = Image.fromarray(picture(3, 61, 40, 4).astype(np.uint8), "CMYK")
        yield f"jpeg/cmyk-progressive{int(progressive)}", saved(cmyk, "JPEG", quality=90,
                                                                progressive=progressive)
    plain = saved(image, "JPEG", quality=80)
    yield "jpeg/junk-behind", plain + b"\0" * 1000 + plain
    yield "jpeg/padded-markers", plain[:2] + b"\xff\xff\xff" + plain[2:]


def sampling_files():
    """Ways of sampling chroma that libjpeg-turbo takes, some of which hardly anybody writes."""
    factors = {
        "440": [(1, 2), (1, 1), (1, 1)], "411": [(4, 1), (1, 1), (1, 1)],
        "410": [(4, 2), (1, 1), (1, 1)], "441": [(1, 4), (1, 1), (1, 1)],
        "420": [(2, 2), (1, 1), (1, 1)], "422": [(2, 1), (1, 1), (1, 1)],
        "444": [(1, 1), (1, 1), (1, 1)], "311": [(3, 1), (1, 1), (1, 1)],
        "uneven": [(2, 2), (2, 1), (1, 2)],
        "rows-only-blue": [(1, 2), (1, 1), (1, 2)], "wide-blue": [(2, 1), (2, 1), (1, 1)],
        "bright-chroma": [(1, 1), (2, 2), (2, 2)]}
    for name, sampling in factors.items():
        for width, height in ((61, 47), (16, 16), (7, 90), (1, 1), (33, 2)):
            yield (f"jpeg-sampling/{name}-{width}x{height}",
                   media_jpeg.encode(picture(width + height, width, height), sampling))


def unfinished_files():
    """Progressive files whose last scans are missing: decoders smooth the blocks, and versions of
    libjpeg-turbo do it differently where chroma is sampled less."""
    image = Image.fromarray(picture(1, 93, 71).astype(np.uint8))
    for subsampling, name in ((0, "444"), (1, "422"), (2, "420")):
        jpeg = saved(image, "JPEG", progressive=True, subsampling=subsampling, quality=80)
        scans = [i for i in range(len(jpeg) - 1) if jpeg[i:i + 2] == b"\xff\xda"]
        for kept in range(1, len(scans)):
            table = jpeg.rfind(b"\xff\xc4", scans[kept - 1], scans[kept])
            end = scans[kept] if table < 0 else table
            yield f"jpeg-unfinished/{name}-{kept}-scans", jpeg[:end] + b"\xff\xd9"


def orientation_files():
    image = Image.fromarray(picture(4, 23, 14).astype(np.uint8))
    jpeg = saved(image, "JPEG", quality=95)
    lossless = saved(image, "WEBP", lossless=True)
    rgb = picture(4, 23, 14)
    mark = b"Exif\0\0"
    for n in range(0, 10):
        yield f"orientation/jpeg-{n}", app1(jpeg, mark + exif(n))
        yield f"orientation/png-{n}", png(rgb, 8, 2, [(b"eXIf", exif(n, ">"))])
    for n in (3, 6, 8):
        yield f"orientation/png-late-{n}", png(rgb, 8, 2, late=[(b"eXIf", exif(n))])
        yield f"orientation/webp-{n}", saved(image, "WEBP", lossless=True, exif=exif(n))
        text = f"\nexif\n{len(exif(n)):8}\n".encode() + exif(n, prefix=mark).hex().encode()
        wrapped = text[:60] + b"\n" + text[60:]
        yield f"orientation/png-raw-{n}", png(
            rgb, 8, 2, [(b"tEXt", b"Raw profile type exif\0" + wrapped)])
        yield f"orientation/png-packed-{n}", png(
            rgb, 8, 2, [(b"zTXt", b"Raw profile type exif\0\0" + zlib.compress(text))])
        yield f"orientation/png-xmp-{n}", png(
            rgb, 8, 2, [(b"iTXt", b"XML:com.adobe.xmp\0\0\0\0\0" + xmp(n))])
        yield f"orientation/png-xmp-packed-{n}", png(
            rgb, 8, 2, [(b"iTXt", b"XML:com.adobe.xmp\0\1\0\0\0" + zlib.compress(xmp(n, True)))])
        yield f"orientation/jpeg-xmp-{n}", app1(jpeg, b"http://ns.adobe.com/xap/1.0/\0" + xmp(n))
    yield "orientation/webp-xmp", saved(image, "WEBP", lossless=True, xmp=xmp(5, True))
    yield "orientation/both", app1(app1(jpeg, b"http://ns.adobe.com/xap/1.0/\0" + xmp(6)),
                                   mark + exif(3))
    yield "orientation/exif-first", app1(jpeg, mark + exif(1) + xmp(6))
    for kind in (1, 4, 8, 9):
        yield f"orientation/kind-{kind}", app1(jpeg, mark + exif(6, ">", kind))
    yield "orientation/twice-marked", app1(jpeg, mark + exif(6, prefix=mark))
    yield "orientation/behind-others", app1(jpeg, mark + exif(7, before=[(271, 5), (272, 6)]))
    yield "orientation/two-tags", app1(jpeg, mark + exif(8, before=[(274, 5)]))
    yield "orientation/two-segments", app1(app1(jpeg, mark + exif(6)[14:]), mark + exif(6)[:14])
    yield "orientation/count-2", app1(jpeg, mark + exif(6, count=2))
    yield "orientation/count-0", app1(jpeg, mark + exif(6, count=0))
    yield "orientation/count-3", app1(jpeg, mark + exif(8, count=3) + b"\6\0\3\0\2\0")
    yield "orientation/kind-1-xmp", app1(app1(jpeg, b"http://ns.adobe.com/xap/1.0/\0" + xmp(6)),
                                         mark + exif(3, kind=1))
    yield "orientation/none", lossless


def png_files():
    channels = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}
    kinds = [(0, 1), (0, 2), (0, 4), (0, 8), (0, 16), (2, 8), (2, 16), (3, 1), (3, 2), (3, 4),
             (3, 8), (4, 8), (4, 16), (6, 8), (6, 16)]
    seed = 2000
    for color, depth in kinds:
        for interlaced in (False, True):
            for width, height in ((1, 1), (2, 3), (9, 8), (37, 53), (130, 41)):
                seed += 1
                levels = 1 << depth
                samples = picture(seed, width, height, channels[color], levels)
                extra = []
                if color == 3:
                    rng = np.random.default_rng(seed)
                    count = levels if seed % 3 else max(1, levels // 2)
                    samples = np.minimum(samples, count - 1) if seed % 2 else samples
                    extra = [(b"PLTE", rng.integers(0, 256, 3 * count).astype(np.uint8).tobytes())]
                yield (f"png/{color}-{depth}-{'adam7' if interlaced else 'plain'}-{width}x{height}",
                       png(samples, depth, color, extra, interlaced=interlaced))
    yield from transparent_png_files()
    rgb = picture(5, 40, 30)
    yield "png/profile", png(rgb, 8, 2, [(b"iCCP", b"x\0\0" + zlib.compress(b"junk" * 99))])
    yield "png/gamma", png(rgb, 8, 2, [(b"gAMA", struct.pack(">I", 100000)), (b"sRGB", b"\0"),
                                       (b"cHRM", struct.pack(">8I", *range(1, 9)))])
    yield "png/background", png(picture(5, 40, 30, 4), 8, 6, [(b"bKGD", b"\0\1\0\2\0\3")])
    yield "png/text", png(rgb, 8, 2, [(b"tEXt", b"Comment\0" + b"y" * 9999)])
    frames = [Image.fromarray(picture(60 + i, 20, 16).astype(np.uint8)) for i in range(3)]
    yield "png/animated", saved(frames[0], "PNG", save_all=True, append_images=frames[1:])
    yield "png/animated-default", saved(frames[0], "PNG", save_all=True, default_image=True,
                                        append_images=frames[1:])


def transparent_png_files():
    def words(*values):
        return struct.pack(f">{len(values)}H", *values)

    for depth in (1, 2, 4, 8):
        samples = picture(6 + depth, 40, 30, 1, 1 << depth)
        for value in (0, 1, 3, 15, 17, 85, 170, 255, 256, 65535):
            yield f"png/key-grey{depth}-{value}", png(samples, depth, 0, [(b"tRNS", words(value))])
    deep = picture(12, 40, 30, 1, 300)
    for value in (0, 1, 255, 256, 299):
        yield f"png/key-grey16-{value}", png(deep, 16, 0, [(b"tRNS", words(value))])
    rgb = picture(13, 40, 30, 3, 4) * 85
    for values in ((0, 0, 0), (85, 85, 85), (255, 255, 170), (341, 85, 85), (256, 256, 256)):
        yield f"png/key-rgb8-{values[0]}", png(rgb, 8, 2, [(b"tRNS", words(*values))])
        yield f"png/key-rgb16-{values[0]}", png(rgb * 257, 16, 2, [(b"tRNS", words(*values))])
    indices = picture(14, 40, 30, 1, 8)
    palette = bytes(np.random.default_rng(7).integers(0, 2, 24).astype(np.uint8) * 200)
    for name, alphas in (("first", b"\0"), ("third", b"\xff\xff\0"), ("opaque", b"\xff\xff"),
                         ("half", b"\xff\x80"), ("two", b"\0\0"), ("newline", b"\xff\0\xff\n"),
                         ("only-newline", b"\0\n"), ("beyond", b"\xff" * 8 + b"\0")):
        yield f"png/palette-{name}", png(indices, 8, 3, [(b"PLTE", palette), (b"tRNS", alphas)])
    yield "png/palette-outside", png(indices, 8, 3, [(b"PLTE", palette[:9]),
                                                     (b"tRNS", b"\xff" * 5 + b"\0")])


def webp_with_frame(canvas, left, top, frame):
    """An animation of one frame, the chunk of a plain lossless file, on a larger canvas."""
    def part(kind, data):
        return kind + struct.pack("<I", len(data)) + data + b"\0" * (len(data) % 2)

    def three(*values):
        return b"".join(struct.pack("<I", value)[:3] for value in values)

    picture_chunk = saved(frame, "WEBP", lossless=True)[12:]
    head = three(left // 2, top // 2, frame.width - 1, frame.height - 1, 100) + b"\0"
    body = (part(b"VP8X", b"\2\0\0\0" + three(canvas[0] - 1, canvas[1] - 1)) +
            part(b"ANIM", b"\x09\x08\x07\xff\0\0") + part(b"ANMF", head + picture_chunk))
    return part(b"RIFF", b"WEBP" + body)


def webp_files():
    seed = 3000
    for width, height in SIZES:
        if max(width, height) > 200 * min(width, height):
            continue
        seed += 1
        image = Image.fromarray(picture(seed, width, height).astype(np.uint8))
        yield f"webp/lossy-{width}x{height}", saved(image, "WEBP", quality=70)
    image = Image.fromarray(picture(8, 90, 61).astype(np.uint8))
    alpha = Image.fromarray(picture(9, 90, 61, 4).astype(np.uint8))
    for quality in (0, 30, 100):
        yield f"webp/lossy-q{quality}", saved(image, "WEBP", quality=quality)
        yield f"webp/alpha-q{quality}", saved(alpha, "WEBP", quality=quality, alpha_quality=50)
    yield "webp/lossless", saved(image, "WEBP", lossless=True)
    yield "webp/lossless-alpha", saved(alpha, "WEBP", lossless=True)
    yield "webp/lossless-exact", saved(alpha, "WEBP", lossless=True, exact=True)
    yield "webp/profile", saved(image, "WEBP", icc_profile=b"junk" * 99)
    few = Image.fromarray((picture(10, 64, 64) // 128 * 255).astype(np.uint8))
    yield "webp/lossless-few-colours", saved(few, "WEBP", lossless=True)
    frames = [Image.fromarray(picture(70 + i, 33, 27, 4).astype(np.uint8)) for i in range(3)]
    yield "webp/smaller-frame", webp_with_frame(
        (40, 30), 6, 4, Image.fromarray(picture(71, 21, 13).astype(np.uint8)))
    yield "webp/animated", saved(frames[0], "WEBP", save_all=True, append_images=frames[1:])
    yield "webp/animated-lossless", saved(frames[0], "WEBP", save_all=True, lossless=True,
                                          append_images=frames[1:], background=(9, 8, 7, 255))


def gif(screen, frames, palette=None, background=0):
    """A GIF file. A frame: (left, top, indices, palette, transparent index, interlaced)."""
    def table(colors):
        return b"".join(bytes(c) for c in colors)

    def size_bits(colors):
        return len(colors).bit_length() - 2

    flags = 0x80 | size_bits(palette) if palette else 0
    out = b"GIF89a" + struct.pack("<HHBBB", *screen, flags, background, 0)
    out += table(palette) if palette else b""
    for left, top, indices, colors, transparent, interlaced in frames:
        if transparent is not None:
            out += b"!\xf9\x04\x01\0\0" + bytes([transparent]) + b"\0"
        height, width = indices.shape
        local = 0x80 | size_bits(colors) if colors else 0
        out += b"," + struct.pack("<HHHHB", left, top, width, height,
                                  local | (0x40 if interlaced else 0))
        out += table(colors) if colors else b""
        if interlaced:
            order = [y for first, step in ((0, 8), (4, 8), (2, 4), (1, 2))
                     for y in range(first, height, step)]
            indices = indices[order]
        out += b"\x08" + gif_codes(indices.astype(np.uint8).tobytes())
    return out + b";"


def gif_codes(data):
    """LZW of 8 bits; the table is cleared before its codes would need 10 bits."""
    bits, filled = 0, 0
    out = bytearray()
    for i, value in enumerate(data):
        codes = [256, value] if i % 200 == 0 else [value]
        for code in codes:
            bits |= code << filled
            filled += 9
            while filled >= 8:
                out.append(bits & 255)
                bits >>= 8
                filled -= 8
    bits |= 257 << filled
    out += bits.to_bytes((filled + 9 + 7) // 8, "little")
    blocks = [bytes(out[i:i + 255]) for i in range(0, len(out), 255)]
    return b"".join(bytes([len(b)]) + b for b in blocks) + b"\0"


def gif_files():
    rng = np.random.default_rng(11)
    colors = [tuple(int(v) for v in c) for c in rng.integers(0, 256, (256, 3))]
    other = [tuple(int(v) for v in c) for c in rng.integers(0, 256, (256, 3))]
    ramp = [(i, i, i) for i in range(256)]
    few = colors[:4]
    indices = picture(15, 31, 21, 1)[..., 0]
    small = picture(16, 10, 9, 1, 4)[..., 0]
    full = (0, 0, indices, None, None, False)
    yield "gif/plain", gif((31, 21), [full], colors)
    yield "gif/interlaced", gif((31, 21), [(0, 0, indices, None, None, True)], colors)
    yield "gif/local", gif((31, 21), [(0, 0, indices, other, None, False)], colors)
    yield "gif/only-local", gif((31, 21), [(0, 0, indices, other, None, False)])
    yield "gif/no-palette", gif((31, 21), [full])
    yield "gif/ramp", gif((31, 21), [full], ramp)
    yield "gif/local-ramp", gif((31, 21), [(0, 0, indices, ramp[:16], None, False)], colors)
    for index in (0, 3, 200):
        yield f"gif/transparent-local-ramp-{index}", gif(
            (31, 21), [(0, 0, indices, ramp[:16], index, False)], colors)
        yield f"gif/transparent-{index}", gif(
            (31, 21), [(0, 0, indices, None, index, False)], colors)
        yield f"gif/transparent-ramp-{index}", gif((31, 21), [(0, 0, indices, None, index, False)],
                                                   ramp)
        yield f"gif/transparent-few-{index}", gif((10, 9), [(0, 0, small, None, index, False)], few)
    yield "gif/smaller-frame", gif((40, 30), [(5, 7, indices, None, None, False)], colors, 9)
    yield "gif/smaller-frame-transparent", gif(
        (40, 30), [(5, 7, indices, None, 4, True)], colors, 9)
    yield "gif/outside", gif((20, 10), [(15, 7, indices, None, None, False)], colors)
    yield "gif/no-screen", gif((0, 0), [full], colors)
    yield "gif/two-frames", gif((31, 21), [full, (3, 3, small, few, 1, False)], colors)
    yield "gif/beyond-palette", gif((31, 21), [full], few)
    yield "gif/version-87", gif((31, 21), [full], colors).replace(b"GIF89a", b"GIF87a", 1)
    image = Image.fromarray(picture(17, 120, 90).astype(np.uint8))
    yield "gif/by-pillow", saved(image, "GIF")
    frames = [Image.fromarray(picture(80 + i, 30, 20).astype(np.uint8)) for i in range(3)]
    yield "gif/animated", saved(frames[0], "GIF", save_all=True, append_images=frames[1:], loop=0)


def large_files():
    """Edges to 8,000 pixels, at most 33 megapixels, aspect to 200."""
    for width, height, kind in ((8000, 40, "PNG"), (40, 8000, "JPEG"), (8000, 4125, "JPEG"),
                                (4125, 8000, "WEBP"), (1920, 1080, "PNG"), (4000, 3000, "JPEG"),
                                (1280, 720, "JPEG"), (5000, 7000 // 10, "PNG"), (7999, 41, "GIF")):
        image = Image.fromarray(picture(width + height, width, height).astype(np.uint8))
        settings = {"compress_level": 1} if kind == "PNG" else {}
        settings |= {"quality": 60, "method": 0} if kind == "WEBP" else {}
        yield f"large/{kind.lower()}-{width}x{height}", saved(image, kind, **settings)


def files(large=True):
    """(name, bytes) of all images."""
    for part in (jpeg_files, sampling_files, unfinished_files, orientation_files, png_files,
                 webp_files, gif_files):
        yield from part()
    if large:
        yield from large_files()
