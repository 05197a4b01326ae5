"""The worker role: takes requests off the queue and carries them out, one node at a time.

``loop`` has the eight steps, ``tasks`` the table of what each event does, and ``pool`` the threads.
"""
