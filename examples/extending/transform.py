"""A transform of your own for SemBench: the document was seen before as a quoted mail.

``kvmend bench build --transforms quoted_mail`` needs the entry point ``quoted_mail = "my_package:quoted_mail"`` in the
group ``sembench.transforms``. Edits belong into the donor; the recipient keeps the whole source text.
"""

from sembench.manifest import WorkloadItem
from sembench.workload.build import build_items
from sembench.workload.prompt import analyst_prompt, base_prompt
from sembench.workload.record import SourceRecord
from sembench.workload.transforms import TRANSFORMS, Skipped, TransformContext
from sembench.workload.transforms.base import make_item


def quoted_mail(record: SourceRecord, context: TransformContext) -> WorkloadItem | Skipped:
    if "\n" not in record.context:
        return Skipped("a document of one line cannot be quoted line by line")
    donor = base_prompt(record).replace("\n", "\n> ")
    return make_item(
        record, "quoted_mail", analyst_prompt(record), [donor], exact=False, semantic=True, materialize=True
    )


TRANSFORMS.register("quoted_mail", quoted_mail)
letters = [SourceRecord("letters", str(n), "\n".join(f"Line {n}.{i}." for i in range(n)), "Who wrote?") for n in (1, 9)]
built = build_items(letters, ["quoted_mail"], TransformContext(letters))
print(f"{len(built.items)} item; skipped: {built.skipped}")
print(built.items[0].donor_prompts[0].text.splitlines()[-3:])
