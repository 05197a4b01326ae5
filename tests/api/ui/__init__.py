"""The web page, as a browser gets it from the API process."""
