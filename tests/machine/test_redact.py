"""No secret survives: neither in a record's variables nor in a line of stderr."""

from __future__ import annotations

import json
import string
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from torchstone.machine.redact import (
    hidden_variables,
    is_secret_name,
    redact_text,
    tail,
    visible_variables,
)

_ALNUM = string.ascii_letters + string.digits


def _word(least: int, most: int, alphabet: str = _ALNUM) -> st.SearchStrategy[str]:
    return st.text(alphabet=alphabet, min_size=least, max_size=most)


TOKENS = st.one_of(
    _word(16, 16, string.ascii_uppercase + string.digits).map("AKIA".__add__),
    _word(36, 36).map("ghp_".__add__),
    _word(40, 60, _ALNUM + "_").map("github_pat_".__add__),
    _word(34, 34).map("hf_".__add__),
    _word(20, 48, _ALNUM + "-_").map("sk-".__add__),
    _word(20, 40, _ALNUM + "-").map("xoxb-".__add__),
    st.tuples(_word(10, 40), _word(10, 80), _word(10, 40)).map(lambda p: "eyJ" + ".".join(p)),
)
PROSE = st.text(alphabet=string.ascii_lowercase + " \n\t:,./'\"()[]", max_size=60)
NAMES = st.sampled_from(
    (
        *("HF_TOKEN", "API_KEY", "MY_SECRET", "DB_PASSWORD", "PGPASS", "AWS_CREDENTIALS"),
        *("GITHUB_TOKEN", "SESSION_ID", "COOKIE", "openai_api_key", "APIKEY", "BASIC_AUTH"),
    )
)


@given(before=PROSE, token=TOKENS, after=PROSE)
def test_no_token_of_known_shape_survives_in_text(before: str, token: str, after: str) -> None:
    assert token not in redact_text(f"{before} {token} {after}", {})


@given(
    name=NAMES,
    value=st.text(alphabet=st.characters(codec="utf-8"), min_size=6, max_size=60),
    before=PROSE,
    after=PROSE,
    spell=st.sampled_from([str, repr, json.dumps, str.strip]),
)
def test_no_value_of_a_secret_variable_survives_in_text(
    name: str, value: str, before: str, after: str, spell: object
) -> None:
    spelt = spell(value)  # type: ignore[operator]
    clean = redact_text(before + spelt + after, {name: value, "OTHER": "x"})
    assert value not in clean
    inner = spelt if spell in (str, str.strip) else spelt[1:-1]
    assert len(inner) < 6 or inner not in clean


@given(
    values=st.lists(
        st.text(alphabet="ab*~/", min_size=6, max_size=12), min_size=1, max_size=4, unique=True
    ),
    order=st.randoms(use_true_random=False),
)
def test_marks_never_join_with_text_into_another_secret(values: list[str], order: object) -> None:
    env = {f"TOKEN_{i}": value for i, value in enumerate(values)} | {"HOME": "/ab"}
    pieces = values * 2 + ["/ab", "*", "a"]
    order.shuffle(pieces)  # type: ignore[attr-defined]
    clean = redact_text("".join(pieces), env)
    assert not [value for value in values if value in clean]


SECRETS_IN_CONTEXT = [
    "password={}",
    "Password: {}",
    '{{"api_key": "{}"}}',
    "--token {}",
    "Authorization: Bearer {}",
    "authorization: Basic {}",
    "postgresql://me:{}@db.example/x",
    "https://{}@host.example/simple",
    "redis://:{}@host:6379/0",
    "aws_secret_access_key = {}",
    "https://host.example/a?X-Amz-Signature={}&b=1",
    "Cookie: id={}",
    "-----BEGIN RSA PRIVATE KEY-----\nAAAA\n{}\n-----END RSA PRIVATE KEY-----",
    "-----BEGIN PRIVATE KEY-----\n{}",
    "{}\nAAAA\n-----END PRIVATE KEY-----",
    "worker 1: {}\nworker 1: -----END PRIVATE KEY-----",
    "key = 'x\\n{}\\n-----END EC PRIVATE KEY-----'",
]


@pytest.mark.parametrize("context", SECRETS_IN_CONTEXT)
@given(secret=_word(12, 40))
@settings(max_examples=30)
def test_a_secret_betrayed_by_its_context_is_hidden(context: str, secret: str) -> None:
    assert secret not in redact_text("failed at\n" + context.format(secret) + "\nend", {})


def test_a_password_with_awkward_signs_in_an_address_is_hidden() -> None:
    for password in ("p@ss", "p:a:ss", "p/a#ss", "hunter2"):
        assert password not in redact_text(f"postgresql://me:{password}@db/x failed", {})


def test_ordinary_text_is_left_alone() -> None:
    text = (
        "Traceback (most recent call last):\n"
        '  File "model.py", line 3, in forward\n'
        "KeyError: 'logits'; tokenizer=bert; max_tokens=128; sha cf30153c4c131c8164ee7798e5022d81\n"
        "https://pytorch.org/docs RuntimeError: mat1 and mat2 shapes (64x10 and 20x5)"
    )
    env = {"PWD": "Traceback", "TOKENIZERS_PARALLELISM": "tokenizer", "SOME_KEY": "short"}
    assert redact_text(text, env) == text


def test_home_becomes_a_tilde_and_a_longer_name_does_not() -> None:
    env = {"HOME": "/home/ada"}
    assert redact_text("/home/ada/x.py /home/ada", env) == "~/x.py ~"
    assert redact_text("/home/adam/x.py", env) == "/home/adam/x.py"
    assert redact_text("a / b", {"HOME": "/"}) == "a / b"


def test_replacing_home_does_not_spell_a_secret() -> None:
    env = {"HOME": "/home/ada", "KEY_PATH": "~/abc123"}
    assert redact_text("see /home/ada/abc123", env) == "see ***"


def test_cleaning_takes_time_in_proportion_to_the_text() -> None:
    def seconds(text: str) -> float:
        start = time.process_time()
        redact_text(text, {"A_TOKEN": "planted-secret"})
        return time.process_time() - start

    for awkward in ("a", "eyJ", "://", "-----END PRIVATE KEY-----", "password ", "/:@"):
        small = min(seconds(awkward * (5_000 // len(awkward))) for _ in range(3))
        large = seconds(awkward * (40_000 // len(awkward)))
        assert large < 24 * small + 0.05, awkward  # 8 times the text; 64 times if it were squared


@given(token=TOKENS, name=st.sampled_from(["OMP_NUM_THREADS", "MALLOC_CONF", "TORCH_LOGS"]))
def test_an_allowed_variable_that_holds_a_token_is_not_shown(token: str, name: str) -> None:
    assert visible_variables({name: token}) == {}
    assert visible_variables({name: f"a:{token},b:1"}) == {}


@given(secret=_word(24, 64).filter(lambda s: not s.isdigit()))
def test_an_allowed_variable_with_an_opaque_value_is_not_shown(secret: str) -> None:
    assert visible_variables({"OMP_NUM_THREADS": secret, "TRITON_CACHE_DIR": secret}) == {}


@given(name=NAMES, value=_word(6, 30), allowed=st.sampled_from(["OMP_X", "TORCHINDUCTOR_DIR"]))
def test_another_variables_secret_is_not_shown_in_an_allowed_one(
    name: str, value: str, allowed: str
) -> None:
    assert visible_variables({name: value, allowed: f"x={value}"}) == {}


def test_settings_that_matter_are_shown() -> None:
    env = {
        "HOME": "/home/ada",
        "OMP_NUM_THREADS": "2",
        "KMP_AFFINITY": "granularity=fine,compact,1,0",
        "GLIBC_TUNABLES": "glibc.malloc.mmap_max=0:glibc.malloc.trim_threshold=4294967296",
        "PYTORCH_CUDA_ALLOC_CONF": "max_split_size_mb:128,garbage_collection_threshold:0.8",
        "TORCHINDUCTOR_CACHE_DIR": "/home/ada/.cache/inductor",
        "LD_PRELOAD": "/home/ada/lib/libtcmalloc_minimal.so.4 /opt/libx.so",
        "PYTHONHASHSEED": "123",
    }
    shown = visible_variables(env)
    assert shown.pop("TORCHINDUCTOR_CACHE_DIR") == "~/.cache/inductor"
    assert shown.pop("LD_PRELOAD") == "libtcmalloc_minimal.so.4:libx.so"
    assert shown == {k: env[k] for k in shown}
    assert len(shown) == 5


def test_names_off_the_list_and_secret_names_on_it_are_not_shown() -> None:
    env = {"EDITOR": "vi", "USER": "ada", "MKL_LICENSE_KEY": "1", "TORCHINDUCTOR_TOKEN": "x"}
    assert visible_variables(env) == {}
    assert is_secret_name("MKL_LICENSE_KEY")
    assert not is_secret_name("TOKENIZERS_PARALLELISM")


@given(value=_word(1, 40), salt=st.binary(min_size=16, max_size=16))
def test_hidden_variables_hold_a_salted_hash_and_nothing_of_the_value(
    value: str, salt: bytes
) -> None:
    hidden = hidden_variables({"MINE": value, "OMP_NUM_THREADS": "2"}, salt)
    assert set(hidden) == {"MINE"}
    assert len(hidden["MINE"]) == 16
    assert hidden == hidden_variables({"MINE": value}, salt)
    assert hidden != hidden_variables({"MINE": value}, salt + b"x")
    assert hidden != hidden_variables({"MINE": value + "x"}, salt)


def test_a_name_that_is_a_secret_is_hashed_too() -> None:
    token = "ghp_" + "a1B2" * 9
    assert token not in repr(hidden_variables({token: "1"}, b"salt"))
    assert hidden_variables({"OMP_X": token}, b"salt").keys() == {"OMP_X"}


def test_tail_keeps_the_last_lines_and_cuts_long_ones() -> None:
    text = "\n".join(f"line {i}\n" for i in range(50)) + "x" * 900
    lines = tail(text, lines=3, width=100)
    assert lines[:2] == ("line 48", "line 49")
    assert len(lines[2]) == 100
    assert lines[2].endswith("…")
    assert tail("") == ()
    assert tail("a", lines=0) == ()
