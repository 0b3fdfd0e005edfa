"""Defects to plant in the embedded server, each with the case that must notice it.

A defect replaces one function by one that is wrong in one respect, as a slip of the pen would.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from asyncop.testing import (
    applying,
    deletion,
    evicting,
    fieldsets,
    lists,
    managed,
    objects,
    patches,
    preparing,
    storage,
)
from asyncop.testing import crd as custom
from asyncop.testing.catalog import Catalog
from asyncop.testing.refusals import RefusedError
from asyncop.testing.selecting import Selection
from asyncop.testing.storage import Change, Collection, Stored
from asyncop.testing.watch import Watcher

Plant = Callable[[pytest.MonkeyPatch], None]
DEFECTS: dict[str, tuple[Plant, str]] = {}


def defect(case: str) -> Callable[[Plant], Plant]:
    def register(plant: Plant) -> Plant:
        DEFECTS[plant.__name__] = (plant, case)
        return plant

    return register


def _nothing(*_: Any, **__: Any) -> None:
    return None


@defect("an_update_of_an_old_version_is_refused")
def stale_updates_are_taken(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(objects.Objects, "_check_identity", _nothing)


@defect("an_update_that_changes_nothing_keeps_the_version")
def every_update_is_a_write(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(objects, "_same", lambda *_: False)


@defect("generation_counts_changes_of_the_spec")
def generation_never_rises(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(preparing, "_is_new_generation", lambda *_: False)


@defect("generation_counts_changes_of_the_spec")
def the_main_endpoint_writes_the_status(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(preparing, "_restore", _nothing)


@defect("preconditions_of_a_deletion_must_hold")
def preconditions_are_not_looked_at(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(deletion, "_check_preconditions", _nothing)


@defect("a_bound_pod_gets_its_grace")
def pods_go_without_grace(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(deletion, "_grace", lambda *_: 0)


@defect("finalizers_keep_an_object_until_the_last_is_gone")
def the_last_finalizer_frees_nothing(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(objects.validation, "is_finished", lambda *_: False)


@defect("propagation_is_kept_as_a_finalizer")
def propagation_is_forgotten(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(deletion, "_policy", _nothing)


@defect("a_list_comes_in_pages")
def pages_show_the_present(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Collection, "at", lambda self, _: (self.keys, self.objects))


@defect("a_list_comes_in_pages")
def a_page_ends_one_too_late(patch: pytest.MonkeyPatch) -> None:
    encode = lists._encode
    patch.setattr(lists, "_encode", lambda version, start: encode(version, start.rstrip("\0")))


@defect("the_past_before_a_compaction_is_gone")
def nothing_is_ever_compacted(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(storage.Storage, "compact", lambda self, _=None: self.clock.now)


@defect("a_watch_tells_what_happened_since_a_version")
def a_watch_tells_the_first_change_twice(patch: pytest.MonkeyPatch) -> None:
    since = Collection.since

    def stuttering(self: Collection, version: int) -> Iterator[Change]:
        changes = list(since(self, version))
        return iter([*changes[:1], *changes])

    patch.setattr(Collection, "since", stuttering)


@defect("dry_runs_are_not_watched")
def a_dry_run_is_wet(patch: pytest.MonkeyPatch) -> None:
    create = objects.Objects.create

    def wet(self: objects.Objects, kind: Any, namespace: str, obj: Any, intent: objects.Intent) -> Any:
        return create(self, kind, namespace, obj, dataclasses.replace(intent, dry_run=False))

    patch.setattr(objects.Objects, "create", wet)


@defect("a_selector_shows_comings_and_goings")
def entering_a_selector_is_a_modification(patch: pytest.MonkeyPatch) -> None:
    put = Watcher._put
    patch.setattr(
        Watcher,
        "_put",
        lambda self, change, kind, stored: put(
            self, change, b"MODIFIED" if change.old and kind == b"ADDED" else kind, stored
        ),
    )


@defect("a_deletion_shows_the_object_as_it_was")
def deletions_keep_the_old_version(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Stored, "at", lambda self, version: Stored(self.key, version, self.raw, self.labels))


@defect("initial_events_end_with_a_bookmark")
def the_bookmark_is_not_marked(patch: pytest.MonkeyPatch) -> None:
    bookmark = Watcher.bookmark
    patch.setattr(Watcher, "bookmark", lambda self, now, _=None: bookmark(self, now))


@defect("labels_select")
def selectors_are_ignored(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Selection, "matches", lambda self, stored: stored is not None and stored.key.startswith(self.prefix))


@defect("a_merge_patch_merges_and_removes")
def null_is_a_value(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(applying, "merge_patch", lambda target, change: {**target, **change})


@defect("a_json_patch_does_all_or_nothing")
def json_patches_do_what_they_can(patch: pytest.MonkeyPatch) -> None:
    operate = patches._operate

    def lenient(target: Any, operation: Any) -> Any:
        try:
            return operate(target, operation)
        except RefusedError:
            return target

    patch.setattr(patches, "_operate", lenient)


@defect("a_strategic_patch_merges_lists_by_key")
def strategic_patches_replace_lists(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(patches, "_strategic_value", lambda _type, before, value, _order: patches.merge_patch(before, value))


@defect("two_appliers_share_an_object")
def applies_never_conflict(patch: pytest.MonkeyPatch) -> None:
    applied = managed.applied
    patch.setattr(
        applying.managed,
        "applied",
        lambda type_, live, config, applying_, who: applied(type_, live, config, applying_._replace(force=True), who),
    )


@defect("an_apply_creates_and_owns")
def what_is_not_applied_any_more_stays(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(managed, "_pruned", lambda _type, merged, _owners, _last: merged)


@defect("updates_take_ownership")
def updates_take_no_ownership(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(objects.managed, "updated", lambda _type, _old, _new, owners, _owner: owners)


@defect("lists_are_shared_by_their_keys")
def a_list_has_one_owner(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(fieldsets, "element", lambda _type, _value: "k:{}")


@defect("custom_objects_are_pruned_and_defaulted")
def custom_objects_get_no_defaults(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(custom, "_default", lambda _schema, value: value)


@defect("custom_objects_are_pruned_and_defaulted")
def custom_objects_are_not_pruned(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(custom, "_prune", lambda _schema, value, _path, _unknown: value)


@defect("custom_objects_are_checked")
def custom_objects_are_not_checked(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(custom, "_check", _nothing)


@defect("an_eviction_heeds_budgets")
def evictions_ignore_budgets(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(evicting, "_spend", _nothing)


@defect("a_namespace_being_deleted_takes_nothing_new")
def a_dying_namespace_takes_objects(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(objects.Objects, "_admit_namespace", _nothing)


@defect("events_have_two_faces")
def the_new_events_are_others(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(objects, "collection_name", lambda kind: kind.qualified)


@defect("discovery_names_what_is_served")
def discovery_leaves_one_out(patch: pytest.MonkeyPatch) -> None:
    of = Catalog.of
    patch.setattr(Catalog, "of", lambda self, group, version: of(self, group, version)[1:])
