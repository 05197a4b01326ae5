# shellcheck shell=bash
# valgrind, which counts the instructions of the processor.
programs valgrind:valgrind
