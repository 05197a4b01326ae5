"""The web page at ``/ui``: pages for people, rendered from the replies of the API's routes to their caller.

It decides nothing itself: every read and every change is a call of a route in this process
(``api.http.in_process``), with the policies and the audit of the API. ``app.add_pages`` adds it to the
application.
"""
