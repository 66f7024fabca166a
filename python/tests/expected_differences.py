"""Where the suites of other projects differ from Sandtimer on purpose: the suite, its check, and the reason.

A difference that is not listed here fails, and so does one that is listed and does not occur.
"""

from __future__ import annotations

EXPECTED: dict[str, dict[str, str]] = {
    "`tests/test-run.sh` of bubblewrap": {
        "Files and directories created as mount points have expected permissions": "it looks for mount points that were left in the work tree; Sandtimer removes them",
    },
}
