"""Keep what `paftbench paper` made: `python tools/keep_paper.py results/runs/paper`.

Writes to `reference/paper` each item's figure, text and verdicts, `trials.jsonl` (every trial of all items, once), and
`about.json`.
"""

import shutil
import sys
from pathlib import Path

from keep import ROOT, about, line_of

from paftbench.store.directory import TrialRecord, read_results
from paftbench.store.files import write_json, write_text


def keep_paper(root: Path) -> Path:
    """The folder that now holds the records; `ValueError` where a trial is missing or ended in error."""
    folder = ROOT / "paper"
    folder.mkdir(parents=True, exist_ok=True)
    records: dict[str, TrialRecord] = {}
    items = sorted(path.parent for path in root.glob("*/verdicts.txt"))
    for item in items:
        records |= {record.id: record for record in read_results(item)}
        for path in sorted((item / "figures").glob(f"{item.name}.*")):
            shutil.copyfile(path, folder / path.name)
        shutil.copyfile(item / "verdicts.txt", folder / f"{item.name}-verdicts.txt")
    write_text(folder / "trials.jsonl", "".join(line_of(record) for record in records.values()))
    names = " ".join(item.name for item in items)
    write_json(folder / "about.json", about(f"paftbench paper {names}", list(records.values())))
    return folder


if __name__ == "__main__":
    print(keep_paper(Path(sys.argv[1])))
