"""Configuration: declared once as oslo.config options, read once into frozen settings."""
