"""``--tokenizer``: records count and digest in the served model's tokens and name its file; a wrong file is refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tests.fakes.model_folder import text_of, write_model_folder
from tests.fakes.raw_client import ask
from tests.unit.semgate.proxy.running_proxy import CHAT, chat_body, play, proxying, stream_three_tokens

from sembase.errors import ConfigurationError
from sembase.tokenizer import FileTokenizer
from sembase.trace.digest_tokens import digest_tokens
from sembase.trace.load import read_records
from sembase.trace.record import TraceRecord
from semgate.cli.main import main
from semgate.prompt.digest import Digests, open_secret
from semgate.proxy.service import ProxyService
from semgate.settings import ProxySettings

TEXT = text_of(200) + " 1,234 naïve"  # the word rule cuts the end into more pieces than this tokenizer


def recorded(folder: Path, tokenizer: Path | None, *, redact_text: bool) -> TraceRecord:
    async def act() -> None:
        async with proxying(stream_three_tokens, folder, tokenizer=tokenizer, redact_text=redact_text) as running:
            assert (await ask(running.port, CHAT, chat_body(TEXT))).status == 200

    play(act)
    (found,) = read_records(folder)
    return found


@pytest.mark.parametrize("named", ["folder", "file"])
def test_records_count_the_tokens_of_the_named_model(tmp_path: Path, named: str) -> None:
    model = write_model_folder(tmp_path / "tiny-model")
    given = model if named == "folder" else model / "tokenizer.json"
    with_model = recorded(tmp_path / "model", given, redact_text=True)
    by_rule = recorded(tmp_path / "rule", None, redact_text=True)
    ids = FileTokenizer(model).ids(TEXT)
    assert with_model.tokenizer == "tiny-model/tokenizer.json"
    assert with_model.prompt_tokens == len(ids) == 202
    assert (by_rule.tokenizer, by_rule.prompt_tokens != len(ids)) == ("builtin", True)
    assert with_model.content_digests is not None
    key = Digests(open_secret(None, tmp_path / "model")).key_of_contents("unknown")
    assert with_model.content_digests == digest_tokens(np.asarray(ids), key)


def test_records_with_text_name_it_too(tmp_path: Path) -> None:
    found = recorded(tmp_path / "traces", write_model_folder(tmp_path / "tiny-model"), redact_text=False)
    assert (found.tokenizer, found.prompt_tokens) == ("tiny-model/tokenizer.json", 202)
    assert found.prompt_text() == TEXT


def test_a_wrong_file_is_refused_before_anything_is_opened(tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_text("{}", encoding="utf-8")
    wrong = {"no such tokenizer.json": tmp_path / "absent", "cannot be loaded": tmp_path / "tokenizer.json"}
    for reason, path in wrong.items():
        settings = ProxySettings(
            upstream_base_url="http://127.0.0.1:1", trace_output_dir=tmp_path / "traces", tokenizer=path
        )
        with pytest.raises(ConfigurationError, match=f"--tokenizer .*{reason}"):
            ProxyService(settings)
    assert not (tmp_path / "traces").exists()


def test_the_command_says_which_tokenizer_is_missing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["proxy", "--upstream-base-url", "http://127.0.0.1:1", "--port", "0", "--trace-output-dir", str(tmp_path)]
    assert main([*words, "--tokenizer", str(tmp_path / "absent")]) == 2
    assert "no such tokenizer.json file" in capsys.readouterr().err
