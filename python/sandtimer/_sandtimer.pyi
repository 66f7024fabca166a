"""The native half of the package: crates/sandtimer-py."""

__version__: str
