"""The blocks of the page on Python run as they stand there."""

import pathlib
import re

PAGE = pathlib.Path(__file__).parents[4] / "docs" / "python.md"


def test_the_blocks_of_the_page_run(service, monkeypatch, tmp_path):
    monkeypatch.setenv("FOREBAY_SOCKET", f"{service.store}/link-0")
    monkeypatch.chdir(tmp_path)
    names = {}
    found = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    # The one of torch runs where there is torch.
    ran = [block for block in found if "import torch" not in block]
    for block in ran:
        exec(compile(block, str(PAGE), "exec"), names)
    assert len(ran) >= 5 and (tmp_path / "out" / "run7" / "log.txt").exists()
