"""T47: our tables and Optuna's in one database."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from fakes.trials import trial
from sqlalchemy import inspect, text

from autotune.store import open_store
from autotune.store.engine import Database, connect
from autotune.store.schema import VERSION_TABLE, upgrade


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path, user_data: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'both.sqlite'}"
    make: Callable[[], str] = request.getfixturevalue("postgresql")
    return make()


def use_optuna(url: str, trials: int) -> None:
    """Opens Optuna's storage, upgrades it, runs one more trial and checks the number."""
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    storage = optuna.storages.RDBStorage(Database.of(url).url.render_as_string(hide_password=False))
    storage.upgrade()
    study = optuna.create_study(storage=storage, study_name="both", load_if_exists=True)
    study.optimize(lambda asked: asked.suggest_int("BM", 1, 8), n_trials=1)
    assert len(study.trials) == trials
    storage.remove_session()
    storage.engine.dispose()


def use_ours(url: str, trials: int) -> None:
    """Opens our store, migrating where needed, adds one more trial and checks the number."""
    with open_store(url, migrate=True) as store:
        store.add(trial())
        assert len(store.records()) == trials


@pytest.mark.parametrize("order", [(use_optuna, use_ours), (use_ours, use_optuna)])
def test_T47_either_may_come_first(url: str, order: tuple[Callable[[str, int], None], ...]) -> None:
    for count in (1, 2):
        for use in order:
            use(url, count)


def test_T47_either_may_be_upgraded(url: str) -> None:
    engine = connect(Database.of(url))
    upgrade(engine, "0001")
    use_optuna(url, 1)
    use_ours(url, 1)
    use_optuna(url, 2)
    with engine.connect() as connection:
        assert connection.scalar(text(f"SELECT version_num FROM {VERSION_TABLE}")) == "0002"
        theirs = set(inspect(connection).get_table_names())
    engine.dispose()
    assert {"alembic_version", VERSION_TABLE, "studies", "autotune_trials"} <= theirs
