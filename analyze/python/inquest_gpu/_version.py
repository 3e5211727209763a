"""The version of the package, which is the version of the programs that it starts."""

__version__ = "0.1.0"
