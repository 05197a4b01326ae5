"""Configuration: each option is declared once in a frozen struct, and read once into it by ``load``."""
