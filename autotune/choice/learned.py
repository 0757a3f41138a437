"""The performance model fitted to whatever is recorded of a GPU: the user's results, shipped studies and their tables.

Tables are large files of records, studies/<gpu table>/<kernel>/tables/*.jsonl[.gz]: no answer is looked for in
them, the model alone learns from them. Records of another version of the kernel teach nothing. A fitted model is
kept, in the process and in the cache folder, until any of this changes.
"""

from __future__ import annotations

import hashlib
import os
import pickle
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import fields, replace
from functools import cache
from glob import escape
from pathlib import Path

import autotune
from autotune import paths
from autotune.choice import shipped
from autotune.gpu import GpuSpec
from autotune.model.fitted import FittedModel
from autotune.records import Origin, TrialRecord
from autotune.render import kernel_hash
from autotune.spec.kernel_spec import KernelSpec
from autotune.spec.load import space_hash
from autotune.store import RecordQuery, Store

_FITTED: dict[str, FittedModel] = {}


def model_of(
    store: Store | None, spec: KernelSpec, gpu: GpuSpec, folders: Sequence[Path] = ()
) -> FittedModel:
    """The model of a kernel on a GPU; the closed form where nothing is recorded.

    Raises StoreError, with file and line, for a damaged file.
    """
    own = [] if store is None else own_records(store, spec, gpu)
    files = study_files(spec, gpu, folders)
    key = _digest(spec, gpu, own, files)
    if key not in _FITTED:
        _FITTED[key] = _kept(key) or _fit(key, spec, gpu, own, files)
    return _FITTED[key]


def own_records(store: Store, spec: KernelSpec, gpu: GpuSpec | None) -> list[TrialRecord]:
    """The user's measurements of a kernel on a GPU, or on all."""
    device = gpu.identity.key if gpu else None
    return store.records(RecordQuery(kernel=spec.name, device=device, origin=Origin.MEASURED))


def study_files(spec: KernelSpec, gpu: GpuSpec | None, folders: Sequence[Path] = ()) -> list[Path]:
    """Shipped studies and tables of the kernel on the GPU, or on all."""
    table = escape(gpu.table) if gpu else "*"
    return shipped.study_files(
        [f"{table}/{spec.name}/*.jsonl*", f"{table}/{spec.name}/tables/*.jsonl*"], folders
    )


def all_records(own: Sequence[TrialRecord], files: Sequence[Path]) -> list[TrialRecord]:
    """Those of the user and of files, each once, in the order made; raises StoreError for a damaged file."""
    found = {record.uid: record for record in own}
    for path in files:
        for record in shipped.records_in(path):
            found.setdefault(record.uid, record)
    # The kernel as measured last is the one that is asked about.
    return sorted(found.values(), key=lambda record: record.created)


def _fit(
    key: str, spec: KernelSpec, gpu: GpuSpec, own: Sequence[TrialRecord], files: Sequence[Path]
) -> FittedModel:
    current = kernel_hash(spec)
    records = [record for record in all_records(own, files) if record.kernel_hash == current]
    model = FittedModel.fit(records, spec, gpu)
    if own or files:
        _keep(key, model)
    return model


def _digest(spec: KernelSpec, gpu: GpuSpec, own: Sequence[TrialRecord], files: Sequence[Path]) -> str:
    """Of all that a fitted model depends on."""
    digest = hashlib.sha256(f"{autotune.__version__} {_program()}".encode())
    texts = {**spec.derived, **spec.variants, **spec.cost}
    accesses = [(access.name, access.address.text, access.width.text) for access in spec.shared_accesses]
    parts = [spec.name, kernel_hash(spec), space_hash(spec), repr(gpu), repr(accesses)]
    parts += [f"{name}: {expression.text}" for name, expression in texts.items()]
    parts += [record.uid for record in own]
    for part in parts:
        digest.update(part.encode() + b"\0")
    for path in files:
        digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()


@cache
def _program() -> str:
    """Which program this is: what another one pickled is not read."""
    files = sorted(Path(autotune.__file__).parent.rglob("*.py"))
    states = [(str(path), path.stat().st_size, path.stat().st_mtime_ns) for path in files]
    return hashlib.sha256(repr(states).encode()).hexdigest()


def _path(key: str) -> Path:
    return paths.user_cache_dir() / "models" / f"{key}.pickle"


def _kept(key: str) -> FittedModel | None:
    """A model of an earlier run; None where there is none, or its file is damaged or something else."""
    with suppress(
        OSError, pickle.UnpicklingError, EOFError, AttributeError, ImportError, TypeError, ValueError
    ):
        content = _path(key).read_bytes()
        digest, body = content[:32], content[32:]
        if hashlib.sha256(body).digest() == digest:
            parts = pickle.loads(body)
            return FittedModel(**parts)
    return None


def _keep(key: str, model: FittedModel) -> None:
    """Without it the next run fits again, so a full or read-only disk does no harm."""
    # The table is large, and predicting has no use for it.
    lean = replace(model, ground=replace(model.ground, table=None))
    body = pickle.dumps({field.name: getattr(lean, field.name) for field in fields(lean)})
    path = _path(key)
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_name(f"{path.name}.{os.getpid()}.part")
        temporary.write_bytes(hashlib.sha256(body).digest() + body)
        temporary.replace(path)
