"""Whose an event of torch's tracer is, by its name."""

from __future__ import annotations

STEP = "torchstone::step"
TOY = "torchstone::toy "
"""Marks of ours: a step, and an op with nothing to do between two of them, before its number."""
PYTHON, OPTIMIZER, LOADING, AUTOGRAD = "python", "optimizer", "loading", "autograd"
GUARDS, BREAK, WRAPPER = "guards", "break", "wrapper"
OP, KERNEL, MARK = "op", "kernel", "mark"
PLACES = (PYTHON, OPTIMIZER, LOADING, AUTOGRAD, GUARDS, BREAK, WRAPPER)
PYTHON_MARKS = (MARK, OPTIMIZER, LOADING)
"""Marks that Python makes on its way: what is called under them is called by Python."""

_BEGINNINGS = (
    ("autograd::engine::", AUTOGRAD),
    ("torch::autograd::", AUTOGRAD),
    ("Optimizer.", OPTIMIZER),
    ("enumerate(DataLoader)#", LOADING),
    ("TorchDynamo Cache Lookup", GUARDS),
    ("Torch-Compiled Region", GUARDS),
    ("Pregraph bytecode", GUARDS),
    ("AOTDispatcher", GUARDS),
    ("## Call CompiledFxGraph", WRAPPER),
)
_REGION, _LOOKUP = "Torch-Compiled Region", "TorchDynamo Cache Lookup"
_GENERATED = ("cpp_fused", "triton_", "cpp_CppMicroGemm")
_ALLOCATING = (
    "aten::empty",
    "aten::empty_like",
    "aten::empty_strided",
    "aten::new_empty",
    "aten::new_empty_strided",
    "aten::resize_",
    "aten::_resize_output_",
    "aten::set_",
)
_VIEWS = frozenset(
    f"aten::{name}"
    for name in (
        *("_reshape_alias", "_unsafe_view", "alias", "as_strided", "chunk", "detach", "detach_"),
        *("diagonal", "expand", "expand_as", "flatten", "movedim", "narrow", "permute", "select"),
        *("slice", "split", "split_with_sizes", "squeeze", "squeeze_", "t", "t_", "transpose"),
        *("transpose_", "unbind", "unflatten", "unfold", "unsqueeze", "unsqueeze_", "view"),
        *("view_as", "resolve_conj", "resolve_neg", "lift_fresh", "result_type", "is_nonzero"),
    )
)
_SYNCHRONISING = ("aten::_local_scalar_dense", "cudaStreamSynchronize", "cudaDeviceSynchronize")
_COPIES = ("Memcpy HtoD", "Memcpy DtoH")


def kind_of(name: str, annotation: bool = False) -> str:
    """One of the places, `op`, `kernel` (of the compiler's making), or `mark` (somebody's own)."""
    for beginning, kind in _BEGINNINGS:
        if name.startswith(beginning):
            return kind
    if any(word in name for word in _GENERATED):
        return KERNEL
    if annotation:
        return MARK
    if "::" in name:
        return OP
    if name.startswith("CompiledFunction") and not name.endswith("Backward"):
        return GUARDS
    if name.rstrip("0123456789").endswith("Backward"):
        return AUTOGRAD
    return OP if name == "detach" else MARK


def enters_compiled_code(name: str) -> bool:
    """A compiled region, or the look for one; inside another region it follows a graph break."""
    return name.startswith((_REGION, _LOOKUP))


def is_region(name: str) -> bool:
    """The code that Dynamo made of a frame, from entry to return."""
    return name.startswith(_REGION)


def region_of(compile_id: str) -> str:
    """The event of the region that was compiled under this number."""
    return f"{_REGION}: {compile_id}"


def belongs_to_region(name: str, kind: str) -> bool:
    """The steps of a region towards its graph, and the graph; ops may as well be of a break."""
    own = kind in (GUARDS, WRAPPER, KERNEL)
    return own and not enters_compiled_code(name)


def allocates(op: str) -> bool:
    """Ops that only make room."""
    return op in _ALLOCATING


def is_view(op: str) -> bool:
    """Ops that never touch the data."""
    return op in _VIEWS or op == "detach"


def synchronises(op: str) -> bool:
    """Ops and calls that wait until a device has done its work."""
    return op in _SYNCHRONISING


def copies_to_device(op: str) -> bool:
    """Copies between the host's memory and a device's."""
    return op.startswith(_COPIES)


def fused_ops(kernel: str) -> tuple[str, ...]:
    """The ops that the name of a generated kernel tells of: `cpp_fused_add_relu_0`."""
    for word in ("_fused_",):
        if word in kernel:
            words = kernel.partition(word)[2].split("_")
            return tuple(part for part in words if part and not part.isdigit())
    return ()
