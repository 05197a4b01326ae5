"""``ferroscope node``: one file for looking, one for changing, one for the verbs of the state machine."""
