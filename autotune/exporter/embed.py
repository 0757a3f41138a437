"""A rendered kernel made fit for a header: no C linkage, its own names, no macros left, nobody else's
macros in it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from autotune.candidate import Source
from autotune.errors import InputError

_TOKEN = re.compile(
    r"""
    (?P<comment>//(?:[^\\\n]|\\.|\\\n)*|/\*.*?\*/)
  | (?P<raw>(?:u8|u|U|L)?R"(?P<mark>[^()\\\s]{0,16})\(.*?\)(?P=mark)")
  | (?P<string>(?:u8|u|U|L)?"(?:[^"\\\n]|\\.)*"|(?:u8|u|U|L)?'(?:[^'\\\n]|\\.)*')
  | (?P<number>\.?[0-9](?:[eEpP][+-]|'[0-9A-Za-z]|[0-9A-Za-z_.])*)
  | (?P<name>[A-Za-z_]\w*)
  | (?P<space>\s+)
  | (?P<other>.)
    """,
    re.VERBOSE | re.DOTALL,
)
_INCLUDE = re.compile(
    r'^[ \t]*#[ \t]*include[ \t]*(?:<(?P<system>[^>\n]+)>|"(?P<own>[^"\n]+)")[^\n]*$', re.MULTILINE
)
_ONCE = re.compile(r"^[ \t]*#[ \t]*pragma[ \t]+once[^\n]*\n?", re.MULTILINE)
_DEFINE = re.compile(r"^[ \t]*#[ \t]*define[ \t]+([A-Za-z_]\w*)", re.MULTILINE)
_C_LINKAGE = re.compile(r'extern\s*"C"\s*(?P<block>\{)?')
_DYNAMIC_SHARED = re.compile(
    r"extern\s+(?:__shared__\s+[^;\[\]]*?|[^;\[\]]*?\b__shared__\s[^;\[\]]*?)\b(?P<name>[A-Za-z_]\w*)\s*\[\s*\]"
)

_WORDS = """
    alignas alignof and and_eq asm auto bitand bitor bool break case catch char char8_t char16_t
    char32_t class compl concept const consteval constexpr constinit const_cast continue co_await
    co_return co_yield decltype default delete do double dynamic_cast else enum explicit export
    extern false float for friend goto if inline int long mutable namespace new noexcept not not_eq
    nullptr operator or or_eq private protected public register reinterpret_cast requires return
    short signed sizeof static static_assert static_cast struct switch template this thread_local
    throw true try typedef typeid typename union unsigned using virtual void volatile wchar_t while
    xor xor_eq defined pragma define undef ifdef ifndef endif elif include
"""
KEYWORDS = frozenset(_WORDS.split())
"""What C++ reserves, and the names of directives."""
_HEADER_MACRO = re.compile(
    r"_[_A-Z].*|cuda[A-Z].*|CUDA.*|CUDART.*|CU_.*|(?:FLT|DBL|LDBL|HUGE|FP|M)_[A-Z0-9_]+|HUGE_VAL[FL]?"
    r"|[A-Z0-9_]*_(?:MAX|MIN|BIT|C|WIDTH)|NULL|NAN|INFINITY|EOF|assert|offsetof|errno|va_\w+|stdin|stdout|stderr"
)
"""Macros of the compiler's or the toolkit's headers, or names reserved for them: used as they are."""


@dataclass(frozen=True)
class Embedded:
    """Kernel text that can stand in a namespace of a header."""

    text: str
    entry: str
    """How to name the kernel inside that namespace."""
    system_includes: tuple[str, ...]
    """What it includes in angle brackets, for the top of the header."""
    macros: tuple[str, ...]
    """What it defines, to be undefined after it."""
    names: frozenset[str]
    """Every identifier in it."""


def embed(source: Source, entry: str, shared: str) -> Embedded:
    """The source with its function renamed to `entry` and its dynamic shared arrays to `shared`.

    Raises InputError where the text cannot stand in a namespace: includes under a condition, an `extern
    "C"` block, or no function of the stated name.
    """
    text = _with_own_includes(source.text, source.template, ())
    text, system = _without_system_includes(_ONCE.sub("", text), source)
    text = _without_c_linkage(text, source)

    function = source.entry.split("<")[0].split("::")[-1].strip()
    code = _only_code(text)
    if not re.search(rf"\b{re.escape(function)}\b", code):
        raise InputError(f"the rendered kernel has no function {function!r}", str(source.template), "entry")
    renamed = {function: entry}
    arrays = sorted({found["name"] for found in _DYNAMIC_SHARED.finditer(code)})
    renamed |= {array: shared if len(arrays) == 1 else f"{shared}_{array}" for array in arrays}
    text = _mapped_names(text, renamed)
    macros = tuple(dict.fromkeys(_DEFINE.findall(_only_code(text))))
    called = re.sub(rf"\b{re.escape(function)}\b", entry, source.entry.split("::")[-1])
    return Embedded(text.strip("\n") + "\n", called, system, macros, identifiers(text))


def identifiers(text: str) -> frozenset[str]:
    """Every name in C++ text outside comments and strings, keywords left out."""
    names = (token.group() for token in _TOKEN.finditer(text) if token.lastgroup == "name")
    return frozenset(name for name in names if name not in KEYWORDS)


def shielded_names(names: Iterable[str], own: Iterable[str] = ()) -> list[str]:
    """The names, sorted, that a caller's macro could replace: all but those that the toolkit's headers may
    define.

    `own` names are the header's beyond doubt and always included.
    """
    found = {name for name in names if not _HEADER_MACRO.fullmatch(name) and name not in KEYWORDS}
    return sorted(found | set(own))


def without_comments(text: str) -> str:
    """C++ text without its comments and the lines that they leave empty."""
    bare = _tokens_mapped(text, lambda kind, token: " " if kind == "comment" else token)
    lines = [line.rstrip() for line in bare.split("\n")]
    return "\n".join(line for line in lines if line) + "\n"


def _with_own_includes(text: str, file: Path, chain: Sequence[Path]) -> str:
    def inlined(found: re.Match[str]) -> str:
        if not found["own"]:
            return found.group()
        path = (file.parent / found["own"]).resolve()
        if path in chain:
            raise InputError(f"includes itself through {path}", str(file))
        try:
            inner = path.read_text(encoding="utf-8")
        except OSError as error:
            raise InputError(
                f"cannot read the included file: {error.strerror}", str(file), found["own"]
            ) from error
        return _with_own_includes(inner, path, (*chain, path))

    return _INCLUDE.sub(inlined, text)


def _without_system_includes(text: str, source: Source) -> tuple[str, tuple[str, ...]]:
    includes: dict[str, None] = {}
    kept: list[str] = []
    depth = 0
    for line in text.split("\n"):
        if re.match(r"\s*#\s*if", line):
            depth += 1
        elif re.match(r"\s*#\s*endif", line):
            depth -= 1
        found = _INCLUDE.match(line)
        if not found:
            kept.append(line)
        elif depth:
            rule = "an include under a condition cannot be moved to the top of a header"
            raise InputError(rule, str(source.template), found["system"], "include it without #if")
        else:
            includes[found["system"]] = None
    return "\n".join(kept), tuple(includes)


def _without_c_linkage(text: str, source: Source) -> str:
    # C linkage would make the kernel, and shared arrays declared in it, one entity with others of that name.
    pieces, end = [], 0
    code = _only_code(text, keep_strings=True)
    for found in _C_LINKAGE.finditer(code):
        if found["block"]:
            rule = 'an extern "C" block cannot be exported; put extern "C" before the kernel alone'
            raise InputError(rule, str(source.template))
        pieces.append(text[end : found.start()])
        end = found.end()
    return "".join(pieces) + text[end:]


def _only_code(text: str, keep_strings: bool = False) -> str:
    """The text with comments (and strings) blanked; same length, so that positions agree."""
    hidden = {"comment"} if keep_strings else {"comment", "string", "raw"}
    return _tokens_mapped(text, lambda kind, token: re.sub(r"[^\n]", " ", token) if kind in hidden else token)


def _mapped_names(text: str, renamed: dict[str, str]) -> str:
    return _tokens_mapped(text, lambda kind, token: renamed.get(token, token) if kind == "name" else token)


def _tokens_mapped(text: str, change: Callable[[str, str], str]) -> str:
    return "".join(change(token.lastgroup or "", token.group()) for token in _TOKEN.finditer(text))
