"""``ferroscope rule``: inspection rules from the command line, one group of commands per file."""
