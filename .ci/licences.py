#!/usr/bin/env python3
"""Checks the licences and sources of all dependencies, on every platform, by deny.toml.

`cargo metadata --format-version 1 --locked | .ci/licences.py`. It checks what `cargo deny check licenses bans sources` checks
with that file, and needs no compiled program of hundreds of crates for that. A rule of deny.toml that it does not know is an
error.
"""

import json
import pathlib
import re
import sys
import tomllib

CRATES_IO = "registry+https://github.com/rust-lang/crates.io-index"
# What deny.toml says beside the licences: it is what this script checks.
KNOWN = {
    "licenses": {},
    "bans": {"multiple-versions": "allow", "wildcards": "deny", "allow-wildcard-paths": True},
    "sources": {"unknown-registry": "deny", "unknown-git": "deny"},
}


def is_allowed(expression, allowed):
    """Whether an SPDX expression leaves a choice of licences all of which are allowed.

    >>> allowed = {"MIT", "Zlib", "Apache-2.0", "Apache-2.0 WITH LLVM-exception"}
    >>> [is_allowed(text, allowed) for text in ("MIT", "GPL-3.0-only", "MIT OR GPL-3.0-only", "MIT AND GPL-3.0-only")]
    [True, False, True, False]
    >>> [is_allowed(text, allowed) for text in ("GPL-3.0-only/MIT", "(MIT OR GPL-2.0-only) AND Zlib")]
    [True, True]

    AND binds more than OR, and an exception belongs to its licence.

    >>> [is_allowed(text, allowed) for text in ("MIT OR Zlib AND GPL-3.0-only", "GPL-3.0-only OR MIT AND AGPL-3.0-only")]
    [True, False]
    >>> [is_allowed(f"{name} WITH LLVM-exception", allowed) for name in ("Apache-2.0", "MIT")]
    [True, False]
    >>> is_allowed("MIT OR", allowed)
    Traceback (most recent call last):
    ValueError: 'MIT OR' is no SPDX expression
    """
    # Crates of long ago have a slash for OR.
    words = re.findall(r"[()]|[^\s()]+", expression.replace("/", " OR "))
    wrong = ValueError(f"{expression!r} is no SPDX expression")

    def take(*expected):
        return words.pop(0) if words and words[0] in expected else None

    def one():
        if take("("):
            value = either()
            if not take(")"):
                raise wrong
            return value
        if not words or words[0] in (")", "AND", "OR", "WITH"):
            raise wrong
        name = words.pop(0)
        if take("WITH"):
            if not words:
                raise wrong
            name += f" WITH {words.pop(0)}"
        return name in allowed

    def both():
        values = [one()]
        while take("AND"):
            values.append(one())
        return all(values)

    def either():
        values = [both()]
        while take("OR"):
            values.append(both())
        return any(values)

    value = either()
    if words:
        raise wrong
    return value


def faults(package, allowed):
    """What is wrong with a package."""
    name = f"{package['name']} {package['version']}"
    licence = package["license"]
    if not licence:
        yield f"{name}: Cargo.toml names no licence as an SPDX expression"
    elif not is_allowed(licence, allowed):
        yield f"{name}: the licence {licence} is not among those that deny.toml allows"
    if package["source"] not in (None, CRATES_IO):
        yield f"{name}: it comes from {package['source']}, not from crates.io"
    for need in package["dependencies"]:
        if need["req"] == "*" and "path" not in need:
            yield f"{name}: it takes any version of {need['name']}"


def main():
    rules = tomllib.loads(pathlib.Path(__file__).parent.with_name("deny.toml").read_text())
    allowed = set(rules["licenses"].pop("allow"))
    if rules != KNOWN:
        sys.exit(f"deny.toml has rules that this script does not check: {rules}, not {KNOWN}")
    packages = json.load(sys.stdin)["packages"]
    if not packages:
        sys.exit("cargo metadata names no package")
    found = [fault for package in packages for fault in faults(package, allowed)]
    print(f"{len(packages)} packages, {len(found)} faults")
    if found:
        sys.exit("\n".join(found))


if __name__ == "__main__":
    main()
