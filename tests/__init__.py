"""The tests of Ferroscope; ``conftest`` says which fixtures they share."""

from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[1]
