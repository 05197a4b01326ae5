"""The tests of Ferroscope; ``conftest`` says which fixtures they share."""
