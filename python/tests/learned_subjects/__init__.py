"""Modules whose functions `test_learned` sends: each tells which modules were there before its call."""
