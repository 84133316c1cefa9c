"""Replicas from Kubernetes instead of a list: the settings in, a watch that keeps the roster up to date out."""

from __future__ import annotations

import logging

from semgate.fleet import Endpoint
from semgate.fleet.discovery.kubernetes import EndpointSliceWatch, Service, in_cluster, own_namespace
from semgate.fleet.discovery.slices import SliceOptions
from semgate.logs import log
from semgate.router.roster import Roster
from semgate.settings import RouterSettings


def kubernetes_watch(settings: RouterSettings, roster: Roster) -> EndpointSliceWatch:
    ports = SliceOptions(
        events_port=settings.events_port, replay_port=settings.replay_port, donors_port=settings.donors_port
    )
    namespace = settings.kubernetes_namespace or own_namespace()

    def changed(endpoints: tuple[Endpoint, ...]) -> None:
        change = roster.apply(endpoints)
        log(logging.INFO, "replicas set", by="kubernetes", **change.as_record())

    def failed(line: str) -> None:
        log(logging.ERROR, "discovery failed, the replicas stay as they are", why=line)

    return EndpointSliceWatch(in_cluster(), Service(settings.kubernetes_service, namespace, ports), changed, failed)
