"""Profiles beside other files of the same name."""

from __future__ import annotations

import cProfile


def test_only_profiles_are_read(module, tmp_path, capsys):
    profiles = module("profiles")
    asked = tmp_path / "run.prof"
    for name in ("run.json", "run.log", "run.prof.txt"):
        (tmp_path / name).write_text("{}")
    for number in (1, 2):
        leave_profile(profiles.node_profile(asked, number))
    assert profiles.written_profiles(asked) == [tmp_path / "run.1", tmp_path / "run.2"]
    leave_profile(asked)
    assert profiles.written_profiles(asked) == [asked, tmp_path / "run.1", tmp_path / "run.2"]
    profiles.print_profiles(asked)
    assert capsys.readouterr().out.count("function calls") == 3


def leave_profile(path):
    profile = cProfile.Profile()
    profile.runcall(sorted, ())
    profile.dump_stats(path)
