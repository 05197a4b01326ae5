"""``ferroscope bmc scan``: finds BMCs in networks, and puts their machines into the inbox."""
