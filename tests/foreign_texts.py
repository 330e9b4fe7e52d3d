# SPDX-License-Identifier: Apache-2.0
"""Hostile names of values and models, which try to inject code, and a view of C without comments and literals."""

import re

#: The identifier of the injected code, which may only occur in comments and literals. Generated identifiers are lower
#: case and macros upper case, so none can be equal to it.
MARKER = "PwNed"
_FUNCTION = f"__attribute__((constructor)) static void {MARKER}(void) {{ }}"
#: Names for values and models. Most contain code that a faulty generator would let out of a comment or literal.
TEXTS = (
    f"*/ {_FUNCTION} /*", f"*\\\n/ {_FUNCTION} /*", f"*??/\n/ {_FUNCTION} /*", f"*\\ \n/ {_FUNCTION} //",
    f"\n{_FUNCTION}\n", f"\r{_FUNCTION}\r", f'"; {_FUNCTION} "', f"\\\"; {_FUNCTION} \\", f"\n#error {MARKER}\n",
    f"/*{MARKER}", f"*/{MARKER}", f"//{MARKER}\\", f"*{MARKER}*", f"/{MARKER}/", f"??/{MARKER}??/", f"{MARKER}\0",
    f"$(shell touch {MARKER})", f"${{{MARKER}}}", f"@{MARKER}@", f"\n\t{MARKER}", f"</text><script>{MARKER}</script>",
    f"]]>&{MARKER};", f"| {MARKER} | [x](javascript:{MARKER}) `{MARKER}`", f"\x1b]0;{MARKER}\x07", f"%n%s{MARKER}",
    f"\u202e{MARKER}\u2028{_FUNCTION}", f"名前{MARKER}é", f"{{{{ {MARKER} }}}}{{% raw %}}", f"a{MARKER}" * 1000, MARKER,
    MARKER.lower(), f"-{MARKER}", f"9{MARKER}", f"{MARKER}_elements", f"{MARKER} elements", "int", "printf", "x" * 300,
    "", " ", "*", "/", "\\", "?", "'", '"')


def code_of(text: str) -> str:
    """Returns C without comments and literals, by the translation phases of C99: trigraphs, line splices, comments."""
    for sign, character in zip("=/'()!<>-", "#\\^[]|{}~", strict=True):
        text = text.replace(f"??{sign}", character)
    text = re.sub(r"\\[ \t]*\n", "", text)
    return re.sub(r"/\*.*?\*/|//[^\n]*|\"(?:[^\"\\\n]|\\.)*\"|'(?:[^'\\\n]|\\.)+'", " ", text, flags=re.DOTALL)
