"""Take a picture of every page of a built site: light, dark and narrow.

    python docs/screenshots.py site .cache/screenshots

The console errors of a page are printed below the name of its picture.
"""

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from browser import chromium, open_page

LOOKS = {"light": (1280, False), "dark": (1280, True), "narrow": (390, False)}  # width, dark colours


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("site", type=Path, help="folder of a built site")
    parser.add_argument("out", type=Path, help="folder for the pictures")
    settings = parser.parse_args()
    if chromium() is None:
        parser.error("screenshots need Chromium or Chrome, and neither is installed")
    pages = sorted(page for page in settings.site.rglob("*.html") if page.name != "404.html")  # it needs a server
    if not pages:
        parser.error(f"{settings.site}: expected a built site, but it has no pages")
    settings.out.mkdir(parents=True, exist_ok=True)
    for page in pages:
        name = "-".join(page.relative_to(settings.site).with_suffix("").parts)
        for look, (width, dark) in LOOKS.items():
            picture = settings.out / f"{name}-{look}.png"
            visit = open_page(page, width=width, dark=dark, screenshot=picture)
            print(picture, *visit.console, sep="\n  ")


if __name__ == "__main__":
    main()
