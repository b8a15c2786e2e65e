"""Writes the small videos of tests/golden/media/video, of frames that a formula gives.

Usage: video_files.py --write | --check. Needs ffmpeg 5.1 with libx264, libvpx and its AAC encoder;
--check makes the files again and compares them. Pixel (x, y) of frame f is (6 f, 64 (x // 16),
80 (y // 16)), in grey videos their sum modulo 256; they are encoded without loss as RGB or grey, so
that tests know the decoded frames from the formula and not from a decoder.
"""

import filecmp
import pathlib
import shutil
import struct
import subprocess
import sys
import tempfile

import numpy as np

FOLDER = pathlib.Path(__file__).resolve().parents[2] / "tests/golden/media/video"
WIDTH, HEIGHT, FRAMES, RATE = 64, 48, 40, 8
X264 = ["-c:v", "libx264rgb", "-qp", "0", "-pix_fmt", "rgb24"]
VP9 = ["-c:v", "libvpx-vp9", "-lossless", "1", "-pix_fmt", "gbrp"]


def frames(count):
    f, y, x = np.meshgrid(np.arange(count), np.arange(HEIGHT), np.arange(WIDTH), indexing="ij")
    return np.stack([6 * f, x // 16 * 64, y // 16 * 80], axis=-1).astype(np.uint8)


def grey(count):
    return frames(count).sum(axis=-1).astype(np.uint8)


def ffmpeg(arguments, data=b""):
    command = ["ffmpeg", "-v", "error", "-y", "-bitexact"]
    return subprocess.run(command + arguments, input=data, check=True, capture_output=True).stdout


def encode(path, arguments, count=FRAMES, pixels="rgb24"):
    raw = frames(count) if pixels == "rgb24" else grey(count)
    source = ["-f", "rawvideo", "-pix_fmt", pixels, "-s", f"{WIDTH}x{HEIGHT}", "-r", str(RATE),
              "-i", "pipe:0"]
    exact = ["-fflags", "+bitexact", "-flags:v", "+bitexact"]
    ffmpeg(source + arguments + exact + [str(path)], raw.tobytes())


def box(kind, body):
    return struct.pack(">I", 8 + len(body)) + kind + body


def grown(data, path, change):
    """`data`, boxes of MP4, with the body of the one at this path changed, and the sizes around."""
    at, out = 0, b""
    while at < len(data):
        size, kind = struct.unpack_from(">I4s", data, at)
        body = data[at + 8:at + size]
        if kind == path[0]:
            body = change(body) if len(path) == 1 else grown(body, path[1:], change)
        out += box(kind, body)
        at += size
    return out


def alias(path):
    """An "alis" record that names an absolute path, as QuickTime's data references do."""
    name = path.encode()
    head = bytes(4 + 10) + bytes([6]) + b"volume".ljust(27, b"\0") + bytes(12)
    head += bytes([6]) + b"secret".ljust(63, b"\0") + bytes(16) + bytes(4 + 16)
    text = name + b"\0" * (len(name) % 2)
    return head + struct.pack(">HH", 2, len(name)) + text + struct.pack(">Hh", 0xFFFF, 0) + bytes(8)


def naming(data):
    """The video without its pictures, which it says are in the file /tmp/nibble-named.mp4."""
    reference = alias("/tmp/nibble-named.mp4")
    path = [b"moov", b"trak", b"mdia", b"minf", b"dinf", b"dref"]
    data = grown(data, path, lambda _: struct.pack(">II", 0, 1) + box(b"alis", reference))
    return grown(data, [b"mdat"], lambda body: bytes(len(body)))


def write(folder):
    encode(folder / "plain.mp4", X264)
    encode(folder / "plain.avi", X264)
    encode(folder / "plain.webm", VP9)
    encode(folder / "grey.gif", ["-pix_fmt", "gray"], pixels="gray")
    encode(folder / "one.mp4", X264, count=1)
    pts = "setpts='if(lt(N,10),N,10+(N-10)*3)/8/TB'"
    encode(folder / "variable.mp4", ["-vf", pts, "-fps_mode", "passthrough", *X264])
    plain = str(folder / "plain.mp4")
    ffmpeg(["-i", plain, "-c", "copy", "-metadata:s:v:0", "rotate=90", str(folder / "turned.mp4")])
    (folder / "streamed.webm").write_bytes(
        ffmpeg(["-i", str(folder / "plain.webm"), "-c", "copy", "-fflags", "+bitexact", "-f",
                "webm", "-live", "1", "pipe:1"]))
    ffmpeg(["-f", "lavfi", "-i", "sine=duration=0.2", "-c:a", "aac", str(folder / "sound.m4a")])
    ffmpeg(["-i", plain, "-i", str(folder / "sound.m4a"), "-c", "copy",
            str(folder / "sounding.mp4")])
    (folder / "naming.mp4").write_bytes(naming(pathlib.Path(plain).read_bytes()))


def check():
    if not shutil.which("ffmpeg"):
        return print("skipped: ffmpeg is not installed")
    words = subprocess.run(["ffmpeg", "-version"], capture_output=True, text=True).stdout.split()
    if not words[2].startswith("5.1."):
        return print(f"skipped: the files were made by ffmpeg 5.1, and {words[2]} is installed")
    with tempfile.TemporaryDirectory() as made:
        write(pathlib.Path(made))
        names = sorted(path.name for path in FOLDER.iterdir())
        _, differ, missing = filecmp.cmpfiles(FOLDER, made, names, shallow=False)
        if differ or missing or len(list(pathlib.Path(made).iterdir())) != len(names):
            sys.exit(f"files differ from what this script makes: {differ + missing or names}")
    return print(f"{len(names)} files are those that this script makes")


def main():
    if sys.argv[1:] == ["--check"]:
        return check()
    if sys.argv[1:] != ["--write"]:
        sys.exit(__doc__)
    FOLDER.mkdir(exist_ok=True)
    return write(FOLDER)


if __name__ == "__main__":
    main()
