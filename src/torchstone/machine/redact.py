"""What of the environment may be written down, and how text is cleaned of secrets.

Variables on the allow-list are kept by value, unless the value looks like a secret. An arm's other
variables are kept by a salted hash, which tells whether two arms had the same value and nothing
else as long as the salt is not written down with it.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import re
from collections.abc import Iterable, Mapping
from urllib.parse import quote

# What secrets look like: in the name of a variable, in a value, and inside running text.
#
# On the safe side throughout: a harmless word that is hidden costs less than a secret that shows.


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
    return _KEEP_FIRST.sub(_mark_second, _TOKENS.sub(MARK, text))


def _mark_second(match: re.Match[str]) -> str:
    first = next((group for group in match.groups() if group), "")
    return f"{first}{MARK}@" if first == "://" else f"{first}{MARK}"


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


ALLOWED_PREFIXES = (
    *("OMP_", "MKL_", "KMP_", "GOMP_", "OPENBLAS_", "BLIS_", "NUMEXPR_", "VECLIB_", "NUMBA_"),
    *("DNNL_", "ONEDNN_", "MALLOC_", "TCMALLOC_", "TRITON_"),
    *("TORCHINDUCTOR_", "TORCHDYNAMO_", "TORCH_COMPILE_", "TORCH_CUDNN_"),
)
"""Families of settings that decide speed: thread libraries, allocators, compilers."""

ALLOWED_NAMES = frozenset(
    (
        *("GLIBC_TUNABLES", "LD_BIND_NOW", "LD_PRELOAD", "THP_MEM_ALLOC_ENABLE"),
        *("CUBLAS_WORKSPACE_CONFIG", "CUDA_DEVICE_ORDER", "CUDA_LAUNCH_BLOCKING"),
        *("CUDA_MODULE_LOADING", "CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES"),
        *("NVIDIA_TF32_OVERRIDE", "ZE_AFFINITY_MASK"),
        *("PYTHONDEVMODE", "PYTHONGIL", "PYTHONHASHSEED", "PYTHONMALLOC", "PYTHONNOUSERSITE"),
        *("PYTHONOPTIMIZE", "PYTHON_JIT", "TOKENIZERS_PARALLELISM"),
        *("ATEN_CPU_CAPABILITY", "PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF"),
        *("PYTORCH_ENABLE_MPS_FALLBACK", "PYTORCH_HIP_ALLOC_CONF", "PYTORCH_JIT"),
        *("PYTORCH_MPS_HIGH_WATERMARK_RATIO", "PYTORCH_NO_CUDA_MEMORY_CACHING"),
        *("PYTORCH_NVML_BASED_CUDA_CHECK", "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE"),
        *("TORCH_BLAS_PREFER_CUBLASLT", "TORCH_LOGS", "TORCH_NUM_THREADS"),
        *("TORCH_SHOW_CPP_STACKTRACES", "TORCH_USE_CUDA_DSA"),
    )
)

HASH_DIGITS = 16
MAX_VALUE = 300
_MIN_KEY_LINE = 16
_PATH_NAME = re.compile(r"(?:DIR|PATH|HOME|FILE|PRELOAD)\Z|_CACHE", re.IGNORECASE)
_PLAIN_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}\Z")


def visible_variables(env: Mapping[str, str]) -> dict[str, str]:
    """The variables that may be written down, by value, home as `~` and secrets left out."""
    shown = {name: _visible_value(name, env) for name in sorted(env)}
    return {name: value for name, value in shown.items() if value is not None}


def _visible_value(name: str, env: Mapping[str, str]) -> str | None:
    allowed = name in ALLOWED_NAMES or name.startswith(ALLOWED_PREFIXES)
    if not allowed or is_secret_name(name) or not _is_safe_name(name):
        return None
    value = env[name]
    if name == "LD_PRELOAD":
        value = ":".join(os.path.basename(part) for part in re.split(r"[:\s]+", value) if part)
    is_path = _PATH_NAME.search(name) is not None
    if without_secrets(value, env) != value or looks_opaque(value, is_path):
        return None
    return redact_text(value, env)[:MAX_VALUE]


def _is_safe_name(name: str) -> bool:
    return (
        _PLAIN_NAME.match(name) is not None
        and hide_shapes(name) == name
        and not any(looks_opaque(part) for part in name.split("_"))
    )


def hidden_variables(env_of_arm: Mapping[str, str], salt: bytes) -> dict[str, str]:
    """The arm's variables that may not be shown: a keyed hash each, so that guessing is no use.

    The salt is the key; equal values have equal hashes only under the same salt. A name that
    itself looks like a secret is hashed as well.
    """
    shown = visible_variables(env_of_arm)
    hidden = {}
    for name in sorted(set(env_of_arm) - set(shown)):
        label = name if _is_safe_name(name) else f"name-{_hash('name', name, salt)}"
        hidden[label] = _hash(f"value:{name}", env_of_arm[name], salt)
    return hidden


def _hash(purpose: str, value: str, salt: bytes) -> str:
    message = f"{purpose}\0{value}".encode("utf-8", "surrogateescape")
    return hmac.new(salt, message, hashlib.sha256).hexdigest()[:HASH_DIGITS]


def redact_text(text: str, env: Mapping[str, str]) -> str:
    """The text without the values of secret variables, without known tokens, home as `~`.

    Clean the text before it is cut: half a secret has no shape.
    """
    text = without_secrets(text, env)
    for home in _homes(env):
        text = re.sub(re.escape(home) + r"(?![\w.-])", "~", text)
    # The marks and `~` might have joined what stood beside them into a secret's spelling.
    return _replace_values(text, _secret_spellings(env))


def without_secrets(text: str, env: Mapping[str, str]) -> str:
    """The text without the values of secret variables and without known tokens."""
    spellings = _secret_spellings(env)
    return _replace_values(hide_shapes(_replace_values(text, spellings)), spellings)


def _secret_spellings(env: Mapping[str, str]) -> list[str]:
    """Each secret value as it may stand in text: as it is, escaped, or line by line."""
    found: set[str] = set()
    for name, value in env.items():
        if not is_secret_name(name) or len(value) < MIN_SECRET:
            continue
        found |= {value, repr(value)[1:-1], json.dumps(value)[1:-1], quote(value, errors="replace")}
        found |= {value.strip(), quote(value, safe="", errors="replace")}
        found |= {line for line in value.splitlines() if len(line) >= _MIN_KEY_LINE}
    return sorted((s for s in found if len(s) >= MIN_SECRET), key=len, reverse=True)


def _replace_values(text: str, spellings: Iterable[str]) -> str:
    present = [s for s in spellings if s in text]
    while present:  # ends, because every replacement makes the text shorter
        text = re.sub("|".join(re.escape(s) for s in present), MARK, text)
        present = [s for s in spellings if s in text]
    return text


def _homes(env: Mapping[str, str]) -> list[str]:
    """Home directories as variables and the system name them, never the root folder."""
    homes = {env.get("HOME", ""), env.get("USERPROFILE", ""), os.path.expanduser("~")}
    homes |= {os.path.realpath(home) for home in homes if os.path.isabs(home)}
    trimmed = {home.rstrip("/\\") for home in homes if os.path.isabs(home)}
    return sorted((home for home in trimmed if len(home) > 1), key=len, reverse=True)


def tail(text: str, lines: int = 20, width: int = 500) -> tuple[str, ...]:
    """The last lines that are not blank, each cut to `width` characters."""
    kept = [line.rstrip() for line in text.splitlines() if line.strip()]
    kept = kept[-lines:] if lines > 0 else []
    return tuple(line if len(line) <= width else line[: width - 1] + "…" for line in kept)
