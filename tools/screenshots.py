"""Makes the pictures of the web page in docs/images: ``python -m tools.screenshots``. It needs Chromium.

``tests/integration/test_ui_pictures.py`` compares the pages with these pictures.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from tests.support.pictures import FOLDER, still_browser, taken


def main() -> None:
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    # The browser may still write there when it has ended.
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name, still_browser(Path(name)) as browser:
        for picture, data in taken(Path(name), browser):
            (folder / f"{picture}.png").write_bytes(data)
            print(folder / f"{picture}.png")


if __name__ == "__main__":
    main()
