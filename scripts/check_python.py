"""Say, before anything is installed, whether this interpreter can hold the project's environment.

`make venv` runs this file with whatever `python3` is there, so it must stay readable for old
interpreters: no f-strings, no annotations, standard library only.
"""

import sys

OLDEST = (3, 11)
NEWEST = (3, 14)


def problem():
    """Return what stands in the way, with the package to install, or None."""
    found = "%d.%d" % sys.version_info[:2]
    if not OLDEST <= sys.version_info[:2] <= NEWEST:
        return (
            "Python 3.11 to 3.14 is needed, but %s is Python %s.\n"
            "Install one of them (Debian, Ubuntu: apt-get install python3.11 python3.11-venv) and\n"
            "name it: make PYTHON=python3.11 ..." % (sys.executable, found)
        )
    try:
        import ensurepip  # noqa: F401 - only its presence matters
        import venv  # noqa: F401 - only its presence matters
    except ImportError as missing:
        return (
            "Python %s is here, but its module %r is not, so no virtual environment can be made.\n"
            "Install the package python3-venv (Debian, Ubuntu: apt-get install python3-venv, or\n"
            "python%s-venv for an interpreter that is not the system's default)."
            % (found, getattr(missing, "name", "venv"), found)
        )
    return None


if __name__ == "__main__":
    text = problem()
    if text:
        sys.exit("error: " + text)
