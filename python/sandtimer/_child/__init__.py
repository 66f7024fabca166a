"""Source that runs inside the sandbox, in whatever interpreter the caller named. It is shipped as text, never imported here.

Each file stands for itself: standard library only, every CPython from 3.9 on, no import of this package.
"""
