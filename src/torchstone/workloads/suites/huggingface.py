"""The HuggingFace suite: models of transformers from their configurations, with random weights.

The models of the HuggingFace suite: data only.

The names, batch sizes and sequence lengths at full scale are those of the PyTorch dashboard's list;
the batch sizes are the listed ones, before its runner divides most of them by two. A name that is a
class of transformers has that class's default configuration; the other names stand for a published
model, and `full` holds the values of its configuration that differ from the class's defaults. Small
scale keeps the blocks and takes fewer and narrower layers.
"""

from __future__ import annotations

import copy
import importlib
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from torchstone.records import SCALES, NotSupported
from torchstone.workloads.suites.base import (
    BuildSetting,
    ModelInfo,
    check_scale,
    find_model,
    list_model,
)
from torchstone.workloads.suites.vision import (
    dropout_notes,
    import_working,
    missing_library,
    no_warnings,
    package_folder,
    repair_torchvision,
    version_of,
    zero_config,
    zero_modules,
)
from torchstone.workloads.workload import Workload

Config = Mapping[str, Any]
"""Values of a configuration that differ from its class's defaults."""

# What the HuggingFace suite knows of one model.


LANGUAGE, CLASSES, SPAN, BOTH_SIDES, SPEECH = "language", "classes", "span", "both-sides", "speech"
"""What a model is given and what its loss is: a label for each token, a class for each sequence,
where an answer starts and ends, a second sequence for the decoder, or sound and a sequence."""

SMALL_BATCH = 4
"""Not 1, which compilers treat as a special case."""


@dataclass(frozen=True)
class HfModel:
    """One model. `small` and `full` are values of its configuration, `small` on top of `full`."""

    name: str
    module: str
    """The folder of transformers that holds it: `transformers.models.MODULE.modeling_MODULE`."""
    batch: int
    length: int
    small: Config
    full: Config = field(default_factory=dict)
    task: str = LANGUAGE
    small_length: int = 64
    class_name: str = ""
    skipped: bool = False
    """Whether the dashboard lists it and leaves it out."""
    note: str = ""
    """What differs from the model of that name elsewhere; for people."""

    @property
    def model_class(self) -> str:
        """The class of transformers; the name itself where it is one."""
        return self.class_name or self.name

    def sizes(self, scale: str) -> tuple[int, int]:
        """Batch and sequence length."""
        if scale == "small":
            return SMALL_BATCH, self.small_length
        return self.batch, self.length

    def settings(self, scale: str) -> dict[str, Any]:
        """Values of the configuration that differ from the class's defaults."""
        return {**self.full, **self.small} if scale == "small" else dict(self.full)


QUICK: Mapping[str, tuple[str, ...]] = {
    "DistilBertForMaskedLM": ("inference",),
}
"""Models of the quick tier, and the modes that they run in there."""

STANDARD = frozenset(
    (
        *("AlbertForMaskedLM", "BartForCausalLM", "BertForMaskedLM", "DistilBertForMaskedLM"),
        *("ElectraForCausalLM", "GPT2ForSequenceClassification", "GoogleFnet", "Llama-3.2-1B"),
        *("MobileBertForMaskedLM", "OPTForCausalLM", "T5Small", "whisper-tiny"),
    )
)
"""One of each kind: encoder, decoder, both; shared layers, bottlenecks, Fourier mixing, speech."""

SMALL_VOCABULARY = 8192
"""Keeps the last layer about as heavy as the blocks are, which it is in the models themselves."""
PROMPT = 1000
"""Tokens of the prompt that the list's runner gives to its generating language models."""
PREFILL = "one forward pass over a prompt; nothing is generated"

# Configurations of the small scale, by family.

_WORDS: Config = {"vocab_size": SMALL_VOCABULARY}
_ENDS: Config = {"bos_token_id": 1, "eos_token_id": 2}
"""Where the model's own would lie outside the small vocabulary."""
_PAD: Config = {"pad_token_id": 0}
"""GPT's classifiers look for the last token that is not padding, and it has none of its own."""
_LAYERS: Config = dict(_WORDS, hidden_size=256, num_hidden_layers=2)
SMALL_BERT: Config = dict(_LAYERS, num_attention_heads=4, intermediate_size=1024)
_ALBERT: Config = dict(SMALL_BERT, hidden_size=512, num_attention_heads=8, intermediate_size=2048)
_FNET: Config = dict(_LAYERS, intermediate_size=1024)
_CONVBERT: Config = dict(SMALL_BERT, embedding_size=256)
_LONGFORMER: Config = dict(SMALL_BERT, attention_window=[32, 32], max_position_embeddings=130)
_DISTIL: Config = dict(_WORDS, dim=256, n_layers=2, n_heads=4, hidden_dim=1024)
_XLNET: Config = dict(_WORDS, d_model=256, n_layer=2, n_head=4, d_inner=1024)
_XGLM: Config = dict(_WORDS, d_model=256, num_layers=2, attention_heads=4, ffn_dim=1024)
_OPT: Config = dict(_LAYERS, num_attention_heads=4, ffn_dim=1024)
_SIDE: Config = {"layers": 2, "attention_heads": 4, "ffn_dim": 1024}
_BOTH: Config = {f"{side}_{n}": v for side in ("encoder", "decoder") for n, v in _SIDE.items()}
_BART: Config = dict(_WORDS, d_model=256, **_BOTH)
_GPT: Config = dict(_WORDS, **_ENDS, n_embd=256, n_layer=2, n_head=4)
_GPTJ: Config = dict(_GPT, rotary_dim=32)
_HEADS: Config = {"num_layers": 2, "num_heads": 4}
_NEO: Config = dict(
    _WORDS,
    **_ENDS,
    **_HEADS,
    hidden_size=256,
    attention_types=[[["global", "local"], 1]],
    window_size=32,
)
_T5: Config = dict(_WORDS, **_HEADS, d_model=256, d_ff=1024)
_MT5: Config = dict(_T5, d_ff=512)
_LLAMA: Config = dict(
    SMALL_BERT, **_ENDS, num_attention_heads=8, num_key_value_heads=2, head_dim=32
)
_MISTRAL: Config = dict(_LLAMA, intermediate_size=896)
_GEMMA: Config = dict(
    SMALL_BERT,
    num_key_value_heads=2,
    head_dim=64,
    query_pre_attn_scalar=64,
    sliding_window=32,
    layer_types=["sliding_attention", "full_attention"],
)
_QWEN: Config = dict(SMALL_BERT, num_key_value_heads=2, head_dim=128, intermediate_size=768)
_OSS: Config = dict(
    SMALL_BERT,
    num_attention_heads=8,
    num_key_value_heads=1,
    intermediate_size=256,
    num_local_experts=8,
    sliding_window=32,
)
_WHISPER: Config = dict(
    _WORDS,
    **_ENDS,
    **_PAD,
    decoder_start_token_id=1,
    encoder_layers=2,
    decoder_layers=2,
    max_source_positions=100,
)

# What published models set otherwise than the defaults of their class.

_LONGFORMER_BASE: Config = {
    "attention_window": [512] * 12,
    "layer_norm_eps": 1e-5,
    "max_position_embeddings": 4098,
    "type_vocab_size": 1,
    "vocab_size": 50265,
}
_LLAMA_1B: Config = {
    "vocab_size": 128256,
    "hidden_size": 2048,
    "intermediate_size": 8192,
    "num_hidden_layers": 16,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 64,
    "max_position_embeddings": 131072,
    "rms_norm_eps": 1e-5,
    "rope_theta": 500000.0,
    "rope_scaling": {
        "rope_type": "llama3",
        "factor": 32.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192,
    },
    "tie_word_embeddings": True,
    "bos_token_id": 128000,
    "eos_token_id": 128001,
}
_GEMMA_4B: Config = {
    "hidden_size": 2560,
    "intermediate_size": 10240,
    "num_hidden_layers": 34,
    "sliding_window": 1024,
    "rope_scaling": {"rope_type": "linear", "factor": 8.0},
}
_QWEN_600M: Config = {
    "hidden_size": 1024,
    "intermediate_size": 3072,
    "num_hidden_layers": 28,
    "num_attention_heads": 16,
    "num_key_value_heads": 8,
    "max_position_embeddings": 40960,
    "rope_theta": 1000000.0,
    "tie_word_embeddings": True,
}
_MISTRAL_7B: Config = {
    "vocab_size": 32768,
    "max_position_embeddings": 32768,
    "rms_norm_eps": 1e-5,
    "rope_theta": 1000000.0,
    "sliding_window": None,
}
_OSS_20B: Config = {"num_hidden_layers": 24, "num_local_experts": 32}


def _prompted(
    name: str, module: str, class_name: str, small: Config, full: Config, **more: Any
) -> HfModel:
    """A language model that reads the whole prompt."""
    made = HfModel(name, module, 8, PROMPT, small, full, class_name=class_name, note=PREFILL)
    return replace(made, **more)


_MODELS = (
    # Encoders.
    HfModel("AlbertForMaskedLM", "albert", 8, 512, _ALBERT),
    HfModel(
        "AllenaiLongformerBase",
        "longformer",
        8,
        1024,
        _LONGFORMER,
        _LONGFORMER_BASE,
        small_length=128,
        class_name="LongformerForMaskedLM",
    ),
    HfModel("BertForMaskedLM", "bert", 32, 512, SMALL_BERT),
    HfModel("DebertaV2ForMaskedLM", "deberta_v2", 8, 512, SMALL_BERT, skipped=True),
    HfModel("DistilBertForMaskedLM", "distilbert", 256, 128, _DISTIL),
    HfModel("ElectraForCausalLM", "electra", 64, 512, {**_WORDS, "num_hidden_layers": 4}),
    HfModel("GoogleFnet", "fnet", 32, 512, _FNET, class_name="FNetForMaskedLM"),
    HfModel("LayoutLMForMaskedLM", "layoutlm", 32, 512, SMALL_BERT),
    HfModel("MegatronBertForCausalLM", "megatron_bert", 16, 512, SMALL_BERT),
    HfModel(
        "MobileBertForMaskedLM",
        "mobilebert",
        256,
        128,
        {**_WORDS, "num_hidden_layers": 4},
        note="small scale keeps its own widths: 512, and 128 inside each bottleneck",
    ),
    HfModel(
        "RobertaForCausalLM",
        "roberta",
        32,
        512,
        SMALL_BERT,
        {"max_position_embeddings": 514},
        note="514 positions instead of 512, as in the published model: two are for padding",
    ),
    HfModel(
        "XLNetLMHeadModel",
        "xlnet",
        16,
        512,
        _XLNET,
        {"use_mems_eval": False},
        note="keeps no memories of the last call, as the others keep no cache",
    ),
    HfModel("YituTechConvBert", "convbert", 32, 512, _CONVBERT, class_name="ConvBertForMaskedLM"),
    # Decoders.
    HfModel("BartForCausalLM", "bart", 8, 1024, _BART, small_length=128),
    HfModel("BlenderbotForCausalLM", "blenderbot", 32, 128, _BART),
    HfModel("DistillGPT2", "gpt2", 32, 512, _GPT, {"n_layer": 6}, class_name="GPT2LMHeadModel"),
    HfModel("GPT2ForSequenceClassification", "gpt2", 8, 1024, _GPT, _PAD, CLASSES, 128),
    HfModel("GPTJForCausalLM", "gptj", 1, 128, _GPTJ, skipped=True),
    HfModel("GPTJForQuestionAnswering", "gptj", 1, 128, _GPTJ, {}, SPAN, 128, skipped=True),
    HfModel("GPTNeoForCausalLM", "gpt_neo", 32, 128, _NEO, skipped=True),
    HfModel(
        "GPTNeoForSequenceClassification",
        "gpt_neo",
        32,
        128,
        _NEO,
        _PAD,
        CLASSES,
        128,
        skipped=True,
    ),
    HfModel("MBartForCausalLM", "mbart", 8, 1024, _BART, small_length=128),
    HfModel("OPTForCausalLM", "opt", 4, 2048, _OPT, small_length=128),
    HfModel("PLBartForCausalLM", "plbart", 16, 1024, _BART, small_length=128),
    HfModel("PegasusForCausalLM", "pegasus", 128, 128, _BART),
    HfModel("TrOCRForCausalLM", "trocr", 64, 256, _BART),
    HfModel("XGLMForCausalLM", "xglm", 32, 128, _XGLM),
    # Both.
    HfModel(
        "BlenderbotForConditionalGeneration",
        "blenderbot",
        16,
        128,
        _BART,
        {},
        BOTH_SIDES,
        skipped=True,
    ),
    HfModel("M2M100ForConditionalGeneration", "m2m_100", 64, 128, _BART, {}, BOTH_SIDES),
    HfModel("MT5ForConditionalGeneration", "mt5", 32, 128, _MT5, {}, BOTH_SIDES),
    HfModel("T5ForConditionalGeneration", "t5", 8, 1024, _T5, {}, BOTH_SIDES, 128),
    HfModel(
        "T5Small",
        "t5",
        8,
        1024,
        {**_WORDS, "num_layers": 2},
        {},
        BOTH_SIDES,
        32,
        "T5ForConditionalGeneration",
        note="small scale keeps its own width of 512",
    ),
    HfModel(
        "whisper-tiny",
        "whisper",
        8,
        128,
        _WHISPER,
        {},
        SPEECH,
        32,
        "WhisperForConditionalGeneration",
        note="small scale keeps its own width of 384 and hears 2 seconds instead of 30",
    ),
    # Language models.
    _prompted("Llama-3.2-1B", "llama", "LlamaForCausalLM", _LLAMA, _LLAMA_1B),
    _prompted("gemma-2-2b", "gemma2", "Gemma2ForCausalLM", _GEMMA, {}),
    _prompted(
        "gemma-3-4b-it",
        "gemma3",
        "Gemma3ForCausalLM",
        _GEMMA,
        _GEMMA_4B,
        skipped=True,
        note=f"the text model alone, without the vision tower; {PREFILL}",
    ),
    _prompted("Qwen3-0.6B", "qwen3", "Qwen3ForCausalLM", _QWEN, _QWEN_600M),
    _prompted(
        "Mistral-7B-Instruct-v0.3",
        "mistral",
        "MistralForCausalLM",
        _MISTRAL,
        _MISTRAL_7B,
        skipped=True,
    ),
    _prompted("gpt-oss-20b", "gpt_oss", "GptOssForCausalLM", _OSS, _OSS_20B, skipped=True),
)

HF_MODELS: tuple[HfModel, ...] = tuple(sorted(_MODELS, key=lambda model: model.name.lower()))
"""In this order everywhere."""


# Inputs of the HuggingFace suite: random tokens and labels from a seed.


FIRST_WORD = 10
"""Tokens below may mean padding or an end (XLNet's padding is 5, the highest that is low), and what
a model does with those depends on where they fall."""
FRAMES_A_POSITION = 2
"""Whisper's second convolution has stride 2."""


def make_inputs(
    model: HfModel, config: Any, batch: int, length: int
) -> Callable[[int], dict[str, Any]]:
    """A function from a seed to the arguments of one call, all with the batch in front."""

    def inputs(seed: int) -> dict[str, Any]:
        import torch

        chance = torch.Generator().manual_seed(seed)

        def whole(low: int, high: int, *shape: int) -> Any:
            return torch.randint(low, high, (batch, *shape), generator=chance, dtype=torch.int64)

        def words() -> Any:
            return whole(FIRST_WORD, config.vocab_size, length)

        if model.task == SPEECH:
            frames = FRAMES_A_POSITION * config.max_source_positions
            sound = torch.randn((batch, config.num_mel_bins, frames), generator=chance)
            return {"input_features": sound, "decoder_input_ids": words(), "labels": words()}
        given = {"input_ids": words()}
        if model.task == CLASSES:
            return {**given, "labels": whole(0, config.num_labels)}
        if model.task == SPAN:
            return {
                **given,
                "start_positions": whole(0, length),
                "end_positions": whole(0, length),
            }
        if model.task == BOTH_SIDES:
            given["decoder_input_ids"] = words()
        return {**given, "labels": words()}

    return inputs


LIBRARY = "transformers"

ENVIRONMENT = {
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "HF_HUB_DISABLE_PROGRESS_BARS": "1",
    "TRANSFORMERS_VERBOSITY": "error",
    "TRANSFORMERS_NO_ADVISORY_WARNINGS": "1",
    "TOKENIZERS_PARALLELISM": "false",
}
"""Nothing is fetched and nothing is said. Read by transformers when it is imported."""

FULL_BATCH_NOTE = "the batch is the listed one, before the PyTorch dashboard divides it"


@dataclass(frozen=True)
class HuggingFaceSuite:
    """Satisfies `Suite`."""

    name: str = "huggingface"
    prefix: str = "hf"
    scales: tuple[str, ...] = SCALES

    def models(self) -> Sequence[ModelInfo]:
        """Every model; `missing` where transformers or this one of its models is not installed."""
        folder = package_folder(LIBRARY)
        reason = missing_library("torch", LIBRARY)
        return tuple(
            list_model(
                model.name,
                "audio" if model.task == SPEECH else "text",
                QUICK,
                STANDARD,
                reason or _missing_model(model, folder),
            )
            for model in HF_MODELS
        )

    def import_library(self, model: str = "") -> None:
        """Import torch and what all models share; a model's own module is small."""
        if reason := missing_library("torch", LIBRARY):
            raise NotSupported(reason)
        os.environ.update(ENVIRONMENT)
        repair_torchvision()
        import_working(f"{LIBRARY}.modeling_utils", LIBRARY)
        import_working(f"{LIBRARY}.utils.logging", LIBRARY).set_verbosity_error()

    def build(self, model: str, setting: BuildSetting) -> Workload:
        """The model in 32-bit floats on the CPU, with random weights, and its inputs."""
        entry = find_model(self.name, HF_MODELS, model)
        check_scale(self, setting.scale)
        config, made, dropouts = build_entry(entry, setting.scale)
        notes = list(dropouts)
        if entry.note:
            notes.append(entry.note)
        if setting.scale == "full":
            notes.append(FULL_BATCH_NOTE)
        if repaired := repair_torchvision():
            notes.append(repaired)
        inputs = make_inputs(entry, config, *entry.sizes(setting.scale))
        return Workload(made, inputs, notes=tuple(notes))


HUGGINGFACE = HuggingFaceSuite()


def build_entry(entry: HfModel, scale: str) -> tuple[Any, Any, tuple[str, ...]]:
    """Configuration and model with random weights and no dropout, and what was set to 0."""
    model_class = _model_class(entry)
    with no_warnings():
        config = _config(entry, model_class, scale)
        in_config = zero_config(config)
        made = model_class(config)
    return config, made, tuple(dropout_notes(in_config, zero_modules(made)))


def _config(entry: HfModel, model_class: Any, scale: str) -> Any:
    settings = copy.deepcopy(entry.settings(scale))
    if entry.task == CLASSES:
        # Else the first call finds it out and writes it down, and compiled code starts over.
        settings["problem_type"] = "single_label_classification"
    config = model_class.config_class(**settings)
    if hasattr(config, "use_cache"):
        config.use_cache = False
    return config


def _model_class(entry: HfModel) -> Any:
    """By its own module: the class by its name in `transformers` takes no less, at times more."""
    module = f"{LIBRARY}.models.{entry.module}.modeling_{entry.module}"
    try:
        with no_warnings():
            return getattr(importlib.import_module(module), entry.model_class)
    except (ModuleNotFoundError, AttributeError) as error:
        if isinstance(error, ModuleNotFoundError) and not module.startswith(error.name or "?"):
            needs = f"{entry.name} needs {error.name}, which is not installed"
            raise NotSupported(needs) from error
        raise NotSupported(_absent(entry)) from error


def _missing_model(entry: HfModel, folder: str) -> str:
    """Whether this version of the library has the model, seen without importing it."""
    source = os.path.join(folder, "models", entry.module, f"modeling_{entry.module}.py")
    return "" if os.path.exists(source) else _absent(entry)


def _absent(entry: HfModel) -> str:
    return f"{LIBRARY} {version_of(LIBRARY)} has no {entry.model_class}"
