"""Texts that others wrote, on their way to a terminal, a page or an error: what would act there is shown instead.

In: a name, a message, a rule's line. Out: the same with control characters and invisible ones (escape sequences, C1
controls, overrides of the direction of writing, separators of lines, halves of surrogate pairs) written as Python
writes them: ``\\x1b``, ``\\u202e``.
"""


def printable(text: str, *, lines: bool = False) -> str:
    """The text without a character that is not printable in the sense of `str.isprintable`.

    Parameters
    ----------
    lines
        Keep line feeds and tabs: for messages, which have several lines, and not for names.
    """
    if text.isprintable():
        return text
    kept = "\n\t" if lines else ""
    return "".join(
        one if one.isprintable() or one in kept else one.encode("unicode_escape").decode("ascii") for one in text
    )
