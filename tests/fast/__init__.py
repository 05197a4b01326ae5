"""Tests of one module at a time: no service, no server, no waiting."""
