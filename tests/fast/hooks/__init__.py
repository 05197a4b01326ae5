"""Tests of the hooks and of the pipeline that runs them."""
