"""Tests of the builder of the ramdisk, which build none."""
