"""Enrolling many machines from a file: for the command line, and for the web page.

It reads the file and decides what each row needs. Its callers send the requests: over HTTP, or within the api.
"""
