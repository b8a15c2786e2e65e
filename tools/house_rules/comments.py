"""Comments are whole sentences: none begins with a word that opens a fragment.

"Of the last rows." and "Whether it ends." have no subject or no verb. What this is not: a judge of
grammar; it refuses four first words and leaves the rest to the reader.
"""

import re

OPENING = re.compile(r"(?:^|\s)(?://+|#|\"\"\")\s?(Of|What|Whether|Behind)\b")


def faults(lines):
    """[(line, words)] of a C++ or Python file."""
    wrong = []
    for number, line in enumerate(lines, 1):
        found = OPENING.search(line)
        if found:
            wrong.append((number, f'a comment begins with "{found[1]}": write a whole sentence '
                                  "with a subject and a verb"))
    return wrong
