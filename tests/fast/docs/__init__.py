"""What the documentation says is true of the code: links, commands, options, paths."""
