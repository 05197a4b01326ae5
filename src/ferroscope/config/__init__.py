"""Configuration: each option is declared once in a frozen struct; ``load`` reads files and environment into it."""
