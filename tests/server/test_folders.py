"""A node's folders: fresh ones are taken as they are, foreign and locked ones are refused."""

from __future__ import annotations

import os
import re
from types import SimpleNamespace

import pytest

from anabranch.server.folders import FolderFault, hold, new_id


def config(*folders, node_id=1):
    return SimpleNamespace(
        node_id=node_id, log_dirs=tuple(map(str, folders)), metadata_log_dir=str(folders[0])
    )


def test_a_fresh_folder_needs_no_format_step(tmp_path):
    held = hold(config(tmp_path / "a" / "deep", tmp_path / "b"))
    cluster = held.settle("")
    assert len(set(held.directory_ids)) == 2
    held.release()
    again = hold(config(tmp_path / "a" / "deep", tmp_path / "b"))
    assert again.cluster_id_or_new() == cluster
    assert again.settle("") == cluster
    assert again.directory_ids == held.directory_ids
    again.release()


def test_a_folder_is_held_by_one_node_also_in_one_process(tmp_path):
    held = hold(config(tmp_path))
    with pytest.raises(FolderFault, match=re.escape("in use by another node; stop that one")):
        hold(config(tmp_path))
    held.release()
    hold(config(tmp_path)).release()


def test_a_folder_of_another_node_is_refused_and_let_go(tmp_path):
    held = hold(config(tmp_path))
    held.settle("")
    held.release()
    for _ in range(2):
        with pytest.raises(FolderFault, match="belongs to node 1, and this is node 2"):
            hold(config(tmp_path, node_id=2))


def test_a_folder_of_another_cluster_is_refused(tmp_path):
    for name in ("a", "b"):
        held = hold(config(tmp_path / name))
        held.settle("")
        held.release()
    with pytest.raises(FolderFault, match="a node is part of one"):
        hold(config(tmp_path / "a", tmp_path / "b"))
    held = hold(config(tmp_path / "a"))
    with pytest.raises(FolderFault, match="belongs to cluster"):
        held.settle(new_id())
    held.release()


def test_what_is_no_folder_is_refused(tmp_path):
    (tmp_path / "file").write_text("x")
    with pytest.raises(FolderFault, match="is not a folder"):
        hold(config(tmp_path / "file"))


def test_bad_meta_properties_are_named(tmp_path):
    (tmp_path / "meta.properties").write_text("version=0\n")
    with pytest.raises(FolderFault, match=r"meta\.properties: version is 0, not 1"):
        hold(config(tmp_path))


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_missing_permission_is_named(tmp_path):
    tmp_path.chmod(0o500)
    with pytest.raises(FolderFault, match="may not be written by this user"):
        hold(config(tmp_path / "a"))
