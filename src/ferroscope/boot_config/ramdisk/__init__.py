"""Built ramdisks: the manifest, its signature, and the ramdisks in a directory.

``contrib.ramdisk`` builds them.
"""
