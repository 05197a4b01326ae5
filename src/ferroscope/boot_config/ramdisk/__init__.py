"""What is known of a ramdisk that was built: its manifest, the signature of that, and the ramdisks in a directory.

``contrib.ramdisk`` builds them.
"""
