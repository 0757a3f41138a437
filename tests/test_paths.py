import pytest

from autotune import paths
from autotune.errors import InputError


def test_shipped_folders_exist():
    assert (paths.shipped("configs") / "kernels" / "sgemm.yaml").is_file()
    assert paths.shipped("templates").is_dir()
    with pytest.raises(ValueError, match="kind"):
        paths.shipped("other")


def test_user_folders_come_first(tmp_path):
    own = tmp_path / "configs" / "kernels" / "sgemm.yaml"
    own.parent.mkdir(parents=True)
    own.write_text("kernel: sgemm")
    assert paths.find("configs", "kernels/sgemm.yaml", [tmp_path]) == own
    assert paths.find("configs", "kernels/sgemm.yaml") == paths.shipped("configs") / "kernels" / "sgemm.yaml"


def test_a_missing_file_names_the_nearest(tmp_path):
    with pytest.raises(InputError) as missing:
        paths.find("configs", "kernels/sgem.yaml", [tmp_path])
    assert "nearest: kernels/sgemm.yaml" in str(missing.value)
    assert str(tmp_path / "configs") in str(missing.value)


@pytest.mark.parametrize("relative", ["../pyproject.toml", "/etc/passwd", "kernels/../../pyproject.toml"])
def test_nothing_outside_the_folders(relative):
    with pytest.raises(InputError, match="below"):
        paths.find("configs", relative)


def test_user_folders_follow_the_environment(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("XDG_DATA_HOME", "XDG_CACHE_HOME", "AUTOTUNE_CACHE"):
        monkeypatch.delenv(name, raising=False)
    assert paths.user_data_dir() == tmp_path / ".local/share/autotune"
    assert paths.user_cache_dir() == tmp_path / ".cache/autotune"
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "d"))
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    assert paths.user_data_dir() == tmp_path / "d/autotune"
    assert paths.user_cache_dir() == tmp_path / ".cache/autotune"
    monkeypatch.setenv("AUTOTUNE_CACHE", "~/elsewhere")
    assert paths.user_cache_dir() == tmp_path / "elsewhere"
