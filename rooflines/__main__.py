"""``python -m rooflines`` is the command ``rooflines``."""

import sys

try:
    from rooflines.cli import main
except ModuleNotFoundError as error:  # in a repository that is not installed
    if (error.name or "").partition(".")[0] == "rooflines":
        raise
    sys.exit(
        f"rooflines: {sys.executable} lacks {error.name}. Install rooflines (make profile, or pip "
        "install -e .)."
    )

if __name__ == "__main__":
    main()
