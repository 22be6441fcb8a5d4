"""A node's folders: fresh ones are taken as they are, foreign and locked ones are refused, and one
that its disk refuses is left out."""

from __future__ import annotations

import errno
import os
import re
from types import SimpleNamespace

import pytest

from anabranch.core.log.checkpoints import META_PROPERTIES
from anabranch.server.folders import LOCK, FolderFault, hold, new_id


def config(*folders, node_id=1):
    return SimpleNamespace(
        node_id=node_id, log_dirs=tuple(map(str, folders)), metadata_log_dir=str(folders[0])
    )


def test_a_fresh_folder_needs_no_format_step(tmp_path):
    held = hold(config(tmp_path / "a" / "deep", tmp_path / "b"))
    cluster = held.settle("")
    assert len(set(held.directories.values())) == 2
    held.release()
    again = hold(config(tmp_path / "a" / "deep", tmp_path / "b"))
    assert again.cluster_id_or_new() == cluster
    assert again.settle("") == cluster
    assert again.directories == held.directories
    again.release()


def test_a_folder_is_held_by_one_node_also_in_one_process(tmp_path):
    held = hold(config(tmp_path))
    with pytest.raises(FolderFault, match=re.escape("in use by another node; stop that node")):
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
    with pytest.raises(FolderFault, match="a node belongs to one cluster"):
        hold(config(tmp_path / "a", tmp_path / "b"))
    held = hold(config(tmp_path / "a"))
    with pytest.raises(FolderFault, match="belongs to cluster"):
        held.settle(new_id())
    held.release()


def test_what_is_no_folder_is_refused(tmp_path):
    (tmp_path / "file").write_text("x")
    with pytest.raises(FolderFault, match="is not a folder"):
        hold(config(tmp_path / "file"))


def spoiled(tmp_path, *names):
    """The configuration of a node with the folders a, b, c, some of which cannot be used."""
    for name in names:
        (tmp_path / name).write_text("x")
    return config(*(tmp_path / name for name in "abc"))


def test_a_node_does_without_a_folder_that_cannot_be_used(tmp_path):
    held = hold(spoiled(tmp_path, "b"))
    held.settle("")
    assert list(held.directories) == [str(tmp_path / name) for name in "ac"]
    assert list(held.unusable) == [str(tmp_path / "b")]
    assert "is not a folder" in held.unusable[str(tmp_path / "b")]
    known = held.directories
    held.release()
    (tmp_path / "b").unlink()
    again = hold(config(*(tmp_path / name for name in "abc")))
    again.settle("")
    assert not again.unusable
    assert known.items() < again.directories.items()
    again.release()


@pytest.mark.parametrize("code", [errno.EIO, errno.EROFS, errno.ENOSPC, errno.EACCES])
@pytest.mark.parametrize("name", [LOCK, META_PROPERTIES, META_PROPERTIES + ".tmp"])
def test_whatever_a_disk_refuses_at_start_leaves_its_folder_out(tmp_path, monkeypatch, code, name):
    (tmp_path / "b").mkdir()
    if name == META_PROPERTIES:
        (tmp_path / "b" / name).touch()

    def refusing(call):
        def opened(path, *rest, **named):
            if str(path) == str(tmp_path / "b" / name):
                raise OSError(code, os.strerror(code))
            return call(path, *rest, **named)

        return opened

    monkeypatch.setattr(os, "open", refusing(os.open))
    monkeypatch.setattr("builtins.open", refusing(open))
    held = hold(spoiled(tmp_path))
    held.settle("")
    assert list(held.unusable) == [str(tmp_path / "b")]
    assert list(held.directories) == [str(tmp_path / name) for name in "ac"]
    held.release()


def test_without_the_folder_of_the_metadata_nothing_starts(tmp_path):
    for _ in range(2):
        with pytest.raises(FolderFault, match="a is not a folder"):
            hold(spoiled(tmp_path, "a"))


def test_without_any_folder_nothing_starts(tmp_path):
    elsewhere = spoiled(tmp_path, *"abc")
    elsewhere.metadata_log_dir = str(tmp_path / "metadata")
    for _ in range(2):
        with pytest.raises(FolderFault, match="c is not a folder"):
            hold(elsewhere)


def test_a_folder_for_the_metadata_alone_is_none_for_records(tmp_path):
    apart = config(tmp_path / "a")
    apart.metadata_log_dir = str(tmp_path / "metadata")
    held = hold(apart)
    held.settle("")
    assert list(held.directories) == [str(tmp_path / "a")]
    held.release()


def test_a_folder_in_use_is_refused_also_beside_others(tmp_path):
    other = hold(config(tmp_path / "b", node_id=2))
    with pytest.raises(FolderFault, match="in use by another node"):
        hold(config(tmp_path / "a", tmp_path / "b"))
    other.release()


def test_bad_meta_properties_are_named(tmp_path):
    (tmp_path / "meta.properties").write_text("version=0\n")
    with pytest.raises(FolderFault, match=r"meta\.properties: version is 0, not 1"):
        hold(config(tmp_path))


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_missing_permission_is_named(tmp_path):
    tmp_path.chmod(0o500)
    with pytest.raises(FolderFault, match="may not be written by this user"):
        hold(config(tmp_path / "a"))


@pytest.mark.parametrize("name", ["passwd", "notes", "a.log", "src"])
def test_a_folder_with_other_files_alone_is_refused_and_left_as_it_was(tmp_path, name):
    (tmp_path / name).touch()
    with pytest.raises(
        FolderFault, match=rf"contains other files \({re.escape(name)}\); set a new"
    ):
        hold(config(tmp_path))
    assert [each.name for each in tmp_path.iterdir()] == [name]


@pytest.mark.parametrize(
    "names",
    [["flights-0", "notes"], ["metadata-store.db"], ["lost+found"], ["meta.properties.tmp"]],
)
def test_a_folder_with_what_nodes_have_is_taken(tmp_path, names):
    for each in names:
        (tmp_path / each).touch()
    hold(config(tmp_path)).release()
