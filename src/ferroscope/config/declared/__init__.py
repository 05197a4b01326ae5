"""The options of each section, as oslo.config declares them; ``config.options`` puts them together."""
