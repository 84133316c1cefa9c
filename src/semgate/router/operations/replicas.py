"""Changes the replicas of a running router: by the TOML file, SIGHUP, the admin surface or Kubernetes.

In: reloaded settings, or a list of replicas; out: what changed. Invalid input changes nothing. Other settings need a
restart; the result names those that changed.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path

from sembase.errors import ConfigurationError, SemBlendError
from semgate.fleet import Endpoint
from semgate.fleet.discovery.kubernetes import EndpointSliceWatch, Service, in_cluster, own_namespace
from semgate.fleet.discovery.slices import SliceOptions
from semgate.logs import log
from semgate.router.operations.settings_check import replicas_of
from semgate.router.state.metrics import RouterMetrics
from semgate.router.state.roster import Change, Roster
from semgate.settings import RouterSettings

ReadSettings = Callable[[], RouterSettings]


class Reloader:
    def __init__(
        self, settings: RouterSettings, roster: Roster, metrics: RouterMetrics, reload_settings: ReadSettings | None
    ) -> None:
        self._settings = settings
        self._roster = roster
        self._metrics = metrics
        self._reload_settings = reload_settings

    def set_replicas(self, texts: tuple[str, ...], source: str, needs_restart: tuple[str, ...] = ()) -> Change:
        try:
            made = self._roster.apply(replicas_of(self._settings, texts))
        except ConfigurationError:
            self._metrics.reloads.labels("refused").inc()
            raise
        change = Change(made.added, made.removed, needs_restart)
        self._metrics.reloads.labels("done").inc()
        log(logging.INFO, "replicas set", by=source, **change.as_record())
        return change

    def reload(self, source: str) -> Change:
        if self._reload_settings is None:
            raise ConfigurationError("this router was started without reloadable settings")
        try:
            wanted = self._reload_settings()
        except SemBlendError:
            self._metrics.reloads.labels("refused").inc()
            raise
        return self.set_replicas(wanted.replicas, source, _changed(self._settings, wanted))

    def try_reload(self, source: str) -> None:
        """For signals and the file watch: an error is logged, since there is no caller to return it to."""
        try:
            self.reload(source)
        except SemBlendError as error:
            log(logging.ERROR, "reload failed, replicas unchanged", by=source, why=str(error))

    async def watch(self, path: Path, every_s: float) -> None:
        """Until cancelled. Compares the content: a ConfigMap changes by a link, an editor by a rename."""
        known = _content(path)
        while True:
            await asyncio.sleep(every_s)
            found = _content(path)
            if found is not None and found != known:
                known = found
                self.try_reload("file")


def kubernetes_watch(settings: RouterSettings, roster: Roster) -> EndpointSliceWatch:
    ports = SliceOptions(
        scheme="https" if settings.kubernetes_scheme == "https" else "http",
        events_port=settings.events_port,
        replay_port=settings.replay_port,
        donors_port=settings.donors_port,
    )
    namespace = settings.kubernetes_namespace or own_namespace()

    def changed(endpoints: tuple[Endpoint, ...]) -> None:
        change = roster.apply(endpoints)
        log(logging.INFO, "replicas set", by="kubernetes", **change.as_record())

    def failed(line: str) -> None:
        log(logging.ERROR, "discovery failed, replicas unchanged", why=line)

    return EndpointSliceWatch(in_cluster(), Service(settings.kubernetes_service, namespace, ports), changed, failed)


def _changed(old: RouterSettings, new: RouterSettings) -> tuple[str, ...]:
    names = (each.name for each in fields(RouterSettings) if each.name != "replicas")
    return tuple(name for name in names if getattr(old, name) != getattr(new, name))


def _content(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except OSError:
        return None  # between an editor's rename and its write
