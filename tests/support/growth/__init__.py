"""How the work of code that reads texts of others grows with the length of the text, in instructions of the processor.

``expressions`` finds all regular expressions, ``shapes`` makes the texts that are worst for each, ``readers`` lists
what else reads such texts, ``__main__`` measures them all in one process under valgrind, and ``counting`` starts that.
"""
