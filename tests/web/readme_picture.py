"""docs/images/chat.png, the README's picture of the chat page. It carries a hash of the page's
files, so that one taken of an older page is noticed."""

import hashlib
import pathlib

from PIL import Image
from PIL.PngImagePlugin import PngInfo

ROOT = pathlib.Path(__file__).resolve().parents[2]
PICTURE = ROOT / "docs/images/chat.png"


def page_hash():
    """A hash of all files that the page is made of."""
    digest = hashlib.sha256()
    for path in sorted((ROOT / "src/server/web").iterdir()):
        if path.suffix in (".html", ".css", ".js", ".svg"):
            digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()


def take(driver):
    """Writes what the browser shows, in few colours, with the hash."""
    driver.save_screenshot(str(PICTURE))
    image = Image.open(PICTURE)
    image.load()
    facts = PngInfo()
    facts.add_text("page", page_hash())
    image.convert("P", palette=Image.Palette.ADAPTIVE).save(PICTURE, optimize=True, pnginfo=facts)


def check():
    """Fails if the page's files have changed since the picture was taken."""
    recorded = Image.open(PICTURE).text.get("page")
    assert recorded == page_hash(), "the page has changed: run web_test.py with --take-picture"
