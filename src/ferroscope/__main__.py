"""``python -m ferroscope`` is ``ferroscope``."""

from __future__ import annotations

from ferroscope_client.cli.main import main

if __name__ == "__main__":
    main()
