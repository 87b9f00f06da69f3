"""The suite is a library: what its documentation says, others can do."""

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

import onefold_contract


@pytest.mark.prove
def test_the_documented_file_is_an_exam_of_its_own(tmp_path: Path) -> None:
    assert onefold_contract.__doc__ is not None
    lines = onefold_contract.__doc__.splitlines()
    example = [line for line in lines if line.startswith("    ") or not line]
    file = tmp_path / "test_exam.py"
    file.write_text(textwrap.dedent("\n".join(example)))
    environment = {name: value for name, value in os.environ.items() if "PYTEST" not in name}
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-k", "TestAnswers", str(file)],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stdout + run.stderr
    assert "8 passed" in run.stdout
