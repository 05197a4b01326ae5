"""Callbacks that no ramdisk would send, by the million, through the real HTTP path into real processes.

Every callback is made from the run's seed and its own number, so that each can be made again. See ``drill``.
"""
