"""Tuned kernels as Python callables on device arrays: `load("sgemm")(A, B)`.

Arrays are CuPy arrays or anything with DLPack (PyTorch tensors on a GPU). For each combination of shapes,
leading dimensions, alignments and classes the best known configuration is looked up and compiled once; later
calls only launch, on CuPy's current stream. A transposed view (`A.T`) is taken as it lies, without a copy.

Kernels that need scratch memory get it zeroed, once for each stream, and leave it zero.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from autotune.candidate import LaunchPlan, ScalarPlan
from autotune.config import Config, Value
from autotune.errors import GpuUnavailable, InputError, nearest_name
from autotune.launch import plan_launch
from autotune.problem import Problem
from autotune.problems import make_problem
from autotune.references import Array
from autotune.spec.kernel_spec import ArrayArgument, KernelSpec, ScalarArgument
from autotune.views import View, view_of


@dataclass(frozen=True)
class Tuned:
    """One compiled configuration with its launch for one set of shapes and classes."""

    config: Config
    launch: LaunchPlan
    start: Callable[[LaunchPlan, Mapping[str, int]], None]
    """Launches over the addresses of the arrays by name."""


class TunedKernel:
    """A kernel that picks its best configuration per call; see `load`."""

    def __init__(
        self,
        spec: KernelSpec,
        gpu: str = "local",
        db: str | Path | None = None,
        folders: Sequence[Path] = (),
        classes: Mapping[str, Value] | None = None,
    ) -> None:
        """Looks at nothing yet: device, database and compiler are used with the first call.

        `classes` are those that arrays and scalars do not show. Raises InputError for what the kernel does not have.
        """
        make_problem(spec, 1, classes=classes)
        self.spec = spec
        self._asked = dict(classes or {})
        self._scratch: dict[tuple[int, int], Any] = {}
        self._gpu = gpu
        self._db = db
        self._folders = tuple(folders)
        self._tuned: dict[object, Tuned] = {}

    @property
    def inputs(self) -> tuple[str, ...]:
        """The arrays that a call takes, in order."""
        return tuple(array.name for array in self.spec.arrays if array.role == "in")

    @cached_property
    def output(self) -> ArrayArgument:
        """The array that a call gives; raises InputError for kernels with several."""
        outputs = [array for array in self.spec.arrays if array.role != "in"]
        if len(outputs) != 1:
            raise InputError(
                f"a callable has one output, {self.spec.name} has {len(outputs)}", key="arguments"
            )
        return outputs[0]

    def __call__(self, *arrays: Any, out: Any = None, **scalars: float) -> Any:
        """The kernel's output, in `out` where given, else in a new array of the first input's kind.

        Raises InputError for wrong types, shapes or devices, GpuUnavailable without CuPy.
        """
        cupy = _cupy()
        values = self._scalars(scalars)
        if out is None and values.get("beta", 0.0) != 0.0:
            raise InputError("beta adds to the output, so it needs one", key="out")
        inputs = self._device_arrays(arrays, cupy)
        device = next(iter(inputs.values())).device
        with device:
            sizes = self._sizes({name: array.shape for name, array in inputs.items()})
            shape = self._shape(self.output, sizes)
            result = cupy.empty(shape, dtype=self.output.dtype) if out is None else out
            all_arrays = {**inputs, self.output.name: _device_array(result, self.output.name, cupy)}
            views = self._views(all_arrays, sizes, device.id)
            tuned = self._find(device.id, sizes, views, values)
            if not tuned.launch.empty:
                launch = _with_values(tuned.launch, {**values, **self._distances(views)})
                addresses = {name: view.address for name, view in views.items()}
                tuned.start(launch, {**addresses, **self._scratch_address(launch, device.id, cupy)})
        return out if out is not None else _like(result, arrays[0], cupy)

    def config(self, *arrays: Any, **scalars: float) -> Config:
        """The configuration that a call with these arrays uses, without running it on them."""
        cupy = _cupy()
        inputs = self._device_arrays(arrays, cupy)
        device = next(iter(inputs.values())).device
        with device:
            sizes = self._sizes({name: array.shape for name, array in inputs.items()})
            blank = cupy.empty(self._shape(self.output, sizes), dtype=self.output.dtype)
            all_arrays = {**inputs, self.output.name: blank}
            views = self._views(all_arrays, sizes, device.id)
            return self._find(device.id, sizes, views, self._scalars(scalars)).config

    def _device_arrays(self, arrays: Sequence[Any], cupy: Any) -> dict[str, Any]:
        named = list(zip(self.inputs, arrays, strict=False))
        left = [array for array in self.spec.arrays if array.name in self.inputs[len(arrays) :]]
        if len(arrays) > len(self.inputs) or not all(self._always_empty(array) for array in left):
            raise InputError(f"{self.spec.name} takes {', '.join(self.inputs)}, got {len(arrays)} arrays")
        return {name: _device_array(array, name, cupy) for name, array in named}

    def _scalars(self, given: Mapping[str, float]) -> dict[str, float]:
        names = [argument.name for argument in self.spec.arguments if isinstance(argument, ScalarArgument)]
        for name in given:
            if name not in names:
                raise InputError(
                    f"{self.spec.name} has no argument {name!r}", nearest=nearest_name(name, names)
                )
        # A scalar's value in the spec is what tuning uses; a call's own defaults are those of BLAS.
        return {name: float(given.get(name, 0.0 if name == "beta" else 1.0)) for name in names}

    def _sizes(self, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, int]:
        """Sizes that the inputs' shapes fix; raises InputError where they contradict each other."""
        sizes: dict[str, int] = {}
        fixed_by: dict[str, str] = {}
        for array in self.spec.arrays:
            if array.name not in shapes:
                continue
            shape = shapes[array.name]
            if len(shape) != len(array.shape):
                raise InputError(f"{array.name} has {len(array.shape)} dimensions, got shape {shape}")
            for expression, length in zip(array.shape, shape, strict=True):
                name = expression.text
                if name in self.spec.problem.sizes and sizes.setdefault(name, length) != length:
                    raise InputError(
                        f"{name} is {sizes[name]} in {fixed_by[name]} and {length} in {array.name} {shape}"
                    )
                fixed_by.setdefault(name, f"{array.name} {shape}")
        missing = [name for name in self.spec.problem.sizes if name not in sizes]
        if missing:
            raise InputError(f"no input's shape gives the size {', '.join(missing)} of {self.spec.name}")
        return sizes

    def _always_empty(self, array: ArrayArgument) -> bool:
        """Whether these classes leave nothing of an input, as no bias."""
        return 0 in self._shape(array, dict.fromkeys(self.spec.problem.sizes, 1))

    def _shape(self, array: ArrayArgument, sizes: Mapping[str, int]) -> tuple[int, ...]:
        lengths = []
        names = {**self._plain_classes, **self._asked, **sizes}
        for expression in array.shape:
            length = expression.evaluate(names)
            assert isinstance(length, int)
            lengths.append(length)
        return tuple(lengths)

    def _view(self, array: ArrayArgument, value: Any, sizes: Mapping[str, int], device: int) -> View:
        """Raises InputError for what the kernel cannot take."""
        shape = self._shape(array, sizes)
        if str(value.dtype) != array.dtype:
            raise InputError(f"{array.name} must be {array.dtype}, got {value.dtype}")
        if tuple(value.shape) != shape:
            raise InputError(f"{array.name} must have shape {shape}, got {tuple(value.shape)}")
        if value.device.id != device:
            raise InputError(
                f"all arrays live on one GPU; {array.name} is on {value.device.id}, not {device}"
            )
        return view_of(array, shape, value)

    def _views(self, values: Mapping[str, Any], sizes: Mapping[str, int], device: int) -> dict[str, View]:
        return {
            array.name: self._view(array, values[array.name], sizes, device)
            if array.name in values
            else View(self._shape(array, sizes), 1, 0)
            for array in self.spec.arrays
        }

    def _distances(self, views: Mapping[str, View]) -> dict[str, int]:
        pitches = {array.pitch: views[array.name].pitch for array in self.spec.arrays if array.pitch}
        return pitches | {
            array.stride: views[array.name].stride for array in self.spec.arrays if array.stride
        }

    def _scratch_address(self, launch: LaunchPlan, device: int, cupy: Any) -> dict[str, int]:
        """Memory of the current stream that is zero, as launches leave it: they follow one another there."""
        if launch.scratch is None:
            return {}
        key = device, int(cupy.cuda.get_current_stream().ptr)
        memory = self._scratch.get(key)
        if memory is None or memory.nbytes < launch.scratch.nbytes:
            memory = self._scratch[key] = cupy.zeros(launch.scratch.nbytes, dtype="uint8")
        return {launch.scratch.name: int(memory.data.ptr)}

    @cached_property
    def _plain_classes(self) -> dict[str, Value]:
        return dict(make_problem(self.spec, 1).classes)

    def _classes(self, views: Mapping[str, View], values: Mapping[str, float]) -> dict[str, Value]:
        from autotune.launch import item_bytes

        aligned = {array.align: array for array in self.spec.arrays if array.align}
        turned = {array.transposed: array for array in self.spec.arrays if array.transposed}
        classes: dict[str, Value] = dict(self._asked)
        for problem_class in self.spec.problem.classes:
            if problem_class.name in aligned:
                array = aligned[problem_class.name]
                view = views[array.name]
                classes[problem_class.name] = view.alignment(item_bytes(array.dtype), problem_class.values)
            elif problem_class.name in turned:
                view = views[turned[problem_class.name].name]
                classes[problem_class.name] = "t" if view.transposed else "n"
            elif problem_class.name == "beta":
                classes["beta"] = "zero" if values.get("beta", 0.0) == 0.0 else "general"
        return classes

    def _find(
        self, device: int, sizes: Mapping[str, int], views: Mapping[str, View], values: Mapping[str, float]
    ) -> Tuned:
        problem = make_problem(self.spec, sizes, classes=self._classes(views, values))
        key = (device, problem.key)
        if key not in self._tuned:
            self._tuned[key] = _tune(self.spec, problem, device, self._gpu, self._db, self._folders)
        return self._tuned[key]


def load(
    kernel: str | KernelSpec = "sgemm",
    gpu: str = "local",
    db: str | Path | None = None,
    folders: Sequence[Path] = (),
    classes: Mapping[str, Value] | None = None,
) -> TunedKernel:
    """A callable over device arrays that runs the best configuration known for each problem.

    `load("sgemm")(A, B, out=C, alpha=1.0, beta=0.5)` gives alpha * A @ B + beta * C; `load("sgemm_epilogue",
    classes={"activation": "relu"})(A, B, bias)` a linear layer. `gpu` may name the GPU that is expected; another one
    is then refused. Raises InputError for a kernel or class that does not exist.
    """
    from autotune.spec.load import load_spec

    spec = kernel if isinstance(kernel, KernelSpec) else load_spec(kernel, folders)
    return TunedKernel(spec, gpu, db, folders, classes)


def _tune(
    spec: KernelSpec, problem: Problem, ordinal: int, gpu: str, db: str | Path | None, folders: Sequence[Path]
) -> Tuned:
    from autotune.choice.best import Question, best_from
    from autotune.compile.compiler import compile_source
    from autotune.device import nvml
    from autotune.device.launcher import Launcher
    from autotune.device.local import as_local_gpu, describe_device, select_gpu
    from autotune.render import render
    from autotune.store import open_store

    facts = describe_device(ordinal)
    board = next((board for board in nvml.boards() if board.pci_bus_id == facts.pci_bus_id), None)
    local = as_local_gpu(facts, board, nvml.driver_versions(), folders)
    select_gpu(gpu, [local])
    question = Question.of(spec, local.spec, problem, local.environment)
    store = open_store(db)
    try:
        config = best_from(store, question, folders).config
    finally:
        store.close()
    kernel = compile_source(render(spec, local.spec, problem, config), local.spec.arch)
    return Tuned(config, plan_launch(spec, problem, config, local.spec), Launcher(kernel))


def _with_values(launch: LaunchPlan, values: Mapping[str, float]) -> LaunchPlan:
    arguments = tuple(
        replace(argument, value=values[argument.name])
        if isinstance(argument, ScalarPlan) and argument.name in values
        else argument
        for argument in launch.arguments
    )
    return replace(launch, arguments=arguments)


def _cupy() -> Any:
    try:
        import cupy
    except ImportError as error:
        raise GpuUnavailable(f"tuned callables need CuPy ({error})") from error
    return cupy


def _device_array(value: Any, name: str, cupy: Any) -> Any:
    if isinstance(value, cupy.ndarray):
        return value
    if hasattr(value, "__dlpack__") and not hasattr(value, "__array_interface__"):
        try:
            return cupy.from_dlpack(value)
        except (BufferError, RuntimeError, TypeError, ValueError) as error:
            raise InputError(f"{name} cannot be read as a GPU array: {error}") from error
    raise InputError(
        f"{name} must be an array on the GPU, got {type(value).__module__}.{type(value).__name__}"
    )


def _like(result: Any, model: Any, cupy: Any) -> Array | Any:
    """The result as an array of the model's library, sharing its memory."""
    if isinstance(model, cupy.ndarray):
        return result
    library = sys.modules.get(type(model).__module__.split(".")[0])
    convert = getattr(library, "from_dlpack", None)
    return convert(result) if convert else result
