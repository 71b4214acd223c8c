"""What secrets look like: in the name of a variable, in a value, and inside running text.

On the safe side throughout: a harmless word that is hidden costs less than a secret that shows.
"""

from __future__ import annotations

import re

MARK = "***"
"""What stands in a secret's place. Shorter than any secret, so that it can never spell one."""

MIN_SECRET = 6
"""Shorter values are too common in ordinary text (`true`, `root`) to be replaced in it."""

_SECRET_NAME = re.compile(
    r"TOKEN(?!IZ)|KEY(?!BOARD)|SECRET|PASS|PWD|CREDENTIAL|AUTH|COOKIE|SESSION|PRIVATE|SIGNATURE"
    r"|WEBHOOK|DSN|DATABASE_URL|CONNECTION_STRING|NETRC",
    re.IGNORECASE,
)
_HARMLESS_NAMES = frozenset(
    {"PWD", "OLDPWD", "DESKTOP_SESSION", "GDMSESSION", "XDG_SESSION_TYPE", "XDG_SESSION_CLASS"}
)

_TOKENS = re.compile(
    "|".join(
        (
            r"\b(?:AKIA|ASIA|AROA|AIDA)[A-Z0-9]{16}",  # AWS
            r"\bgh[pousr]_[A-Za-z0-9]{16,}|\bgithub_pat_\w{20,}",  # GitHub
            r"\bgl(?:pat|dt|rt|ptt)-[\w-]{16,}",  # GitLab
            r"\bhf_[A-Za-z0-9]{16,}|\bapi_org_[A-Za-z0-9]{16,}",  # Hugging Face
            r"\bsk-[\w-]{16,}",  # OpenAI and kin
            r"\b(?:sk|rk|pk)_(?:live|test)_[A-Za-z0-9]{10,}",  # Stripe
            r"\bxox[a-z]-[\w-]{10,}|\bxapp-[\w-]{10,}|hooks\.slack\.com/services/[\w/]+",  # Slack
            r"\beyJ[\w-]{8,}\.[\w-]{4,}(?:\.[\w-]*)?",  # JWT
            r"\bAIza[\w-]{30,}|\bya29\.[\w.-]{16,}",  # Google
            r"\bnpm_[A-Za-z0-9]{20,}|\bpypi-[\w-]{16,}|\bdckr_pat_[\w-]{16,}",  # registries
            r"\bSG\.[\w-]{16,}\.[\w-]{16,}",  # SendGrid
        )
    ),
)
_VALUE = r"""(?:"[^"\n]*"|'[^'\n]*'|[^\s"'&,;]+)"""
_WORD = (
    r"pass(?:word|wd|phrase|code)?|pwd|secret|token(?![is])|api[_-]?key|(?:access|private|secret)"
    r"[_-]?key(?:[_-]?id)?|credentials?|signature|sig|sessionid|auth"
)
# A pair `name=value`: the name is kept, so that a reader still learns what was there.
_KEEP_FIRST = re.compile(
    "|".join(
        (
            rf"((?:{_WORD})[\"']?\s{{0,4}}[:=]\s{{0,4}}){_VALUE}",
            rf"(--?(?:{_WORD})\s{{1,4}}){_VALUE}",
            r"(\bBearer\s{1,4})[^\s\"']+",
            r"(\bBasic\s{1,4})[A-Za-z0-9+/=_-]{8,}",
            r"(\bAuthorization[\"']?\s{0,4}[:=]\s{0,4})[^\n]+",
            r"(\bCookie[\"']?\s{0,4}:\s{0,4})[^\n]+",
            r"(://)[^\s/@:]{0,256}:[^\s@]{0,512}@(?:[^\s/@]{0,256}@)?",  # user:pass@
            r"(://)[^\s/@]{1,512}@(?:[^\s/@]{0,256}@)?",  # token@
        )
    ),
    re.IGNORECASE,
)
_KEY_BLOCK = re.compile(
    r"-----BEGIN [A-Z0-9 ]*PRIVATE KEY.*?(?:-----END [A-Z0-9 ]*PRIVATE KEY[A-Z ]*-----|\Z)",
    re.DOTALL,
)
_KEY_END = re.compile(r"-----END [A-Z0-9 ]*PRIVATE KEY[A-Z ]*-----")
_KEY_LINE = re.compile(r"[A-Za-z0-9+/=\s]*\Z")
_KEY_RUN = re.compile(r"[A-Za-z0-9+/=]{12,}")

_RUN = re.compile(r"[A-Za-z0-9+_-]{20,}")
_RUN_WITH_SLASH = re.compile(r"[A-Za-z0-9+/_-]{20,}")
_LONG_WORD = re.compile(r"[A-Za-z]{20,}")


def is_secret_name(name: str) -> bool:
    """Whether a variable of this name is likely to hold a secret."""
    return name.upper() not in _HARMLESS_NAMES and _SECRET_NAME.search(name) is not None


def hide_shapes(text: str) -> str:
    """The text without tokens of known shapes, key blocks, passwords in pairs and in addresses."""
    text = _hide_cut_key(_KEY_BLOCK.sub(MARK, text))
    text = _TOKENS.sub(MARK, text)
    return _KEEP_FIRST.sub(lambda m: next((g for g in m.groups() if g), "") + _mark_for(m), text)


def _mark_for(match: re.Match[str]) -> str:
    address = match.group().startswith("://")
    return f"{MARK}@" if address else MARK


def _hide_cut_key(text: str) -> str:
    """A key block whose beginning was cut off: its lines stand before a lone END line."""
    pieces, done = [], 0
    for end in _KEY_END.finditer(text):
        start = end.start()
        while start > done:
            line_start = max(done, text.rfind("\n", done, start - 1) + 1)
            if not _KEY_LINE.match(text, line_start, start):
                break
            start = line_start
        # The rest may hold more of it, behind a prefix or with its line ends written as `\n`.
        pieces += [_KEY_RUN.sub(MARK, text[done:start]), MARK]
        done = end.end()
    return "".join(pieces) + text[done:]


def looks_opaque(value: str, is_path: bool = False) -> bool:
    """A long run that mixes letters and digits, or one long word: no setting looks like that."""
    runs = (_RUN if is_path else _RUN_WITH_SLASH).findall(value)
    mixed = any(re.search(r"[A-Za-z]", run) and re.search(r"[0-9]", run) for run in runs)
    return mixed or _LONG_WORD.search(value) is not None
