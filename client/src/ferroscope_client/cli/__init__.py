"""The command line: one file per topic, loaded only when its command is called."""
