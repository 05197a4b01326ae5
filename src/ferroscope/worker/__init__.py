"""The worker role: takes requests off the queue and carries them out, one node at a time.

``loop`` has the seven steps, ``tasks`` what each event does, ``pool`` the threads.
"""
