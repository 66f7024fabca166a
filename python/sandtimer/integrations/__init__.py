"""Modules that give users of other projects Sandtimer's limits, each imported by its own name.

`pytest` (a plug-in), `jupyter` (a kernel provisioner), `smolagents` (a Python executor), `dspy` (a code interpreter). None is
imported with the package, and each needs the project that it is for.
"""
