"""The files of the command line -> a page: one chapter per result, and one for all results together."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from sembase.errors import ConfigurationError
from sembase.onepage.section import Section
from sembench.report import compare, engine, load, overview
from sembench.report.page import Chapter, Page, chapter_of, page_of
from sembench.report.subject import Subject, read_object, read_subjects


@dataclass(frozen=True, slots=True)
class Sources:
    results: tuple[Path, ...]
    compared: tuple[Path, Path] | None = None
    verdicts: tuple[Path, ...] = ()
    noise_floor: Path | None = None
    floor_result: Path | None = None
    engine_summaries: tuple[Path, ...] = ()
    load: Path | None = None
    title: str | None = None

    def files(self) -> Iterator[Path]:
        yield from (*self.results, *(self.compared or ()), *self.verdicts, *self.engine_summaries)
        yield from (path for path in (self.noise_floor, self.floor_result, self.load) if path is not None)


def build_page(sources: Sources) -> Page:
    paths = list({path.resolve(): path for path in (*(sources.compared or ()), *sources.results)}.values())
    subjects = read_subjects(paths, sources.verdicts, sources.noise_floor, sources.floor_result)
    chapters = [chapter_of(subject) for subject in subjects]
    extra = _extra(sources, subjects)
    if len(subjects) == 1:
        only = chapters[0]
        whole = Chapter(only.title, only.prefix, only.facts, _before_provenance(only.sections, extra))
        return page_of([whole], sources.title or only.title)
    first = _together(sources, subjects)
    common = Chapter("Both results" if sources.compared else "All results", "", (), (*first, *extra))
    names = " and ".join(subject.name.removesuffix(".json") for subject in subjects[:2])
    title = f"{names} compared" if sources.compared else f"{len(subjects)} results"
    return page_of([common, *chapters], sources.title or title)


def _together(sources: Sources, subjects: Sequence[Subject]) -> list[Section]:
    sections = [overview.section(subjects)]
    if sources.compared is not None:
        if len(subjects) < 2:
            raise ConfigurationError("--compare A B: both are the same file")
        sections.append(compare.section(subjects[0], subjects[1]))
    return sections


def _extra(sources: Sources, subjects: Sequence[Subject]) -> tuple[Section, ...]:
    sections = [engine.section(sources.engine_summaries, subjects)]
    sections.append(load.section(read_object(sources.load, "a load result") if sources.load else None))
    return tuple(sections)


def _before_provenance(sections: Sequence[Section], extra: Sequence[Section]) -> tuple[Section, ...]:
    return (*sections[:-1], *extra, sections[-1])
