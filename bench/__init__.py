"""Benchmarks, which measure and assert no time: ``python -m bench``. See docs/explanation/performance.md."""
