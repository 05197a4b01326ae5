"""What the tests stand on: private database servers, fresh databases, clocks, examples.

Nothing here is a double of something real.
"""
