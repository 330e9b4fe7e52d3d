#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks the workflows and other files of .github without the host, and runs jobs of the workflows on this machine.

    python scripts/check_workflows.py                     # all checks
    python scripts/check_workflows.py --list              # the commands of every job, and why one does not run here
    python scripts/check_workflows.py --run tests/pythons --with python=3.10

Files are validated by their schemas (check-jsonschema) and workflows audited (zizmor) where these packages are
installed. The other checks need PyYAML: actions are named by commits; jobs have a time limit, and no permissions that
they do not name; and the goals of make, files, tests, extras and verbs of megcc that commands name exist.
"""

from __future__ import annotations

import argparse
import itertools
import os
import platform
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parent.parent
WORKFLOWS = ROOT / ".github" / "workflows"
#: Where --run keeps environments and artifacts.
LOCAL = ROOT / "build" / "workflows"
#: Schemas of check-jsonschema, and the files that follow them.
SCHEMAS = {
    "vendor.github-workflows": ".github/workflows/*.yml",
    "vendor.dependabot": ".github/dependabot.yml",
    "vendor.github-issue-forms": ".github/ISSUE_TEMPLATE/[!c]*.yml",
    "vendor.github-issue-config": ".github/ISSUE_TEMPLATE/config.yml",
    "vendor.citation-file-format": "CITATION.cff",
}
PINNED = re.compile(r"^\s*(?:- )?uses: [\w.-]+/[\w./-]+@[0-9a-f]{40}  ?# v\d+\.\d+\.\d+$")
EXPRESSION = re.compile(r"\$\{\{\s*(.*?)\s*\}\}")


class Loader(yaml.SafeLoader):
    """YAML 1.2, where `on` is a word."""


Loader.yaml_implicit_resolvers = {
    first: [(tag, rule) for tag, rule in rules if tag != "tag:yaml.org,2002:bool"]
    for first, rules in yaml.SafeLoader.yaml_implicit_resolvers.items()}
Loader.add_implicit_resolver("tag:yaml.org,2002:bool", re.compile(r"^(?:true|false)$"), list("tf"))


def workflows() -> dict[str, dict]:
    """File name without its ending -> the workflow."""
    return {path.stem: yaml.load(path.read_text(), Loader) for path in sorted(WORKFLOWS.glob("*.yml"))}


def variants(job: dict) -> list[dict]:
    """Every assignment of a job's matrix, one without names where it has none."""
    matrix = dict(job.get("strategy", {}).get("matrix", {}))
    more = matrix.pop("include", [])
    if not matrix:
        return more or [{}]
    return [*(dict(zip(matrix, values, strict=True)) for values in itertools.product(*matrix.values())), *more]


def filled(text: str, values: dict[str, str]) -> str:
    """The text with its expressions replaced.

    Raises:
        KeyError: for an expression that is not among the values.
    """
    return EXPRESSION.sub(lambda match: values[match[1]], text)


def commands(job: dict, variant: dict) -> Iterator[str]:
    """The text of each `run` step, with the values of the matrix."""
    values = {f"matrix.{name}": str(value) for name, value in variant.items()} | {"strategy.job-index": "0"}
    for step in job["steps"]:
        if "run" in step:
            yield filled(step["run"], values)


def structure(name: str, workflow: dict, text: str) -> list[str]:
    """Returns the violations of our rules for a workflow: pinned actions, permissions, time limits, credentials."""
    wrong = [f"{name}: not a commit with its version: {line.strip()}" for line in text.splitlines()
             if "uses:" in line and not PINNED.match(line)]
    if workflow.get("permissions") != {"contents": "read"}:
        wrong.append(f"{name}: top permissions are not 'contents: read'")
    for title, job in workflow["jobs"].items():
        if "timeout-minutes" not in job:
            wrong.append(f"{name}/{title}: no timeout-minutes")
        for needed in [job["needs"]] if isinstance(job.get("needs"), str) else job.get("needs", []):
            if needed not in workflow["jobs"]:
                wrong.append(f"{name}/{title}: needs {needed}, which is no job")
        for step in job["steps"]:
            kept = step.get("with", {}).get("persist-credentials")
            if "actions/checkout@" in step.get("uses", "") and kept is not False:
                wrong.append(f"{name}/{title}: checkout keeps its credentials")
    return wrong


def names(place: str, script: str) -> list[str]:
    """Returns a message for each goal, verb, extra and file that a script names and that does not exist."""
    if shutil.which("bash") and subprocess.run(["bash", "-n"], input=script, text=True, capture_output=True,
                                                check=False).returncode:
        return [f"{place}: bash does not read it: {script}"]
    wrong = []
    goals = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    optional = (ROOT / "pyproject.toml").read_text().partition("optional-dependencies]")[2]
    extras = set(re.findall(r"^(\w+) = \[", optional, re.MULTILINE))
    verbs = set(re.findall(r'_verb\(verbs, "(\w+)"', (ROOT / "tvm_megcc" / "cli" / "options.py").read_text()))
    for line in script.splitlines():
        try:
            words = shlex.split(line, comments=True)
        except ValueError:  # a word over several lines
            continue
        for before, word in itertools.pairwise([*words, ""]):
            if before == "make" and word not in goals:
                wrong.append(f"{place}: the Makefile has no goal {word}")
            if before == "megcc" and word not in verbs:
                wrong.append(f"{place}: the command has no verb {word}")
            if word.startswith((".[", "-e.[")) and not set(word.partition("[")[2].rstrip("]").split(",")) <= extras:
                wrong.append(f"{place}: pyproject.toml has not all extras of {word}")
            if word.startswith(("scripts/", "tests/", "tvm_megcc/")) and not (ROOT / word).exists():
                wrong.append(f"{place}: {word} is not there")
    return wrong


def problems() -> list[str]:
    """Returns the violations of our own rules in all workflows."""
    wrong = []
    for name, workflow in workflows().items():
        wrong += structure(name, workflow, (WORKFLOWS / f"{name}.yml").read_text())
        for title, job in workflow["jobs"].items():
            for variant in variants(job):
                try:
                    for script in commands(job, variant):
                        wrong += names(f"{name}/{title}", script)
                except KeyError as unknown:
                    wrong.append(f"{name}/{title}: {unknown} is no value of the matrix; others go through env")
    return list(dict.fromkeys(wrong))


def tools() -> list[tuple[str, list[str] | None]]:
    """Returns (what is checked, command) for checks by other programs; None for a program that is not installed."""
    found = []
    for schema, pattern in SCHEMAS.items():
        files = sorted(map(str, ROOT.glob(pattern)))
        command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", schema, *files]
        found.append((f"schema {schema}", command if find_spec("check_jsonschema") else None))
    zizmor = shutil.which("zizmor", path=os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"])))
    found.append(("zizmor", [zizmor, "--offline", "--no-progress", "-q", str(ROOT / ".github")] if zizmor else None))
    return found


def runs_here(job: dict, variant: dict) -> str | None:
    """Why a job does not run on this machine, None where it does."""
    runner = filled(job["runs-on"], {f"matrix.{name}": str(value) for name, value in variant.items()})
    system = {"ubuntu": "Linux", "macos": "Darwin", "windows": "Windows"}[runner.split("-")[0]]
    arm = runner.endswith("-arm") or system == "Darwin"
    if system != platform.system() or arm != (platform.machine() in ("aarch64", "arm64")):
        return f"wants {runner}"
    if "environment" in job or "permissions" in job:
        return "has rights that only the host can give"
    return None


def run(place: str, chosen: dict[str, str]) -> int:
    """Runs a job's commands in this checkout, in a virtual environment of its own; returns the first exit code that is
    not 0."""
    name, title = place.split("/")
    workflow = workflows()[name]
    job = workflow["jobs"][title]
    for variant in variants(job):
        why = runs_here(job, variant)
        if why or any(str(variant.get(key)) != value for key, value in chosen.items()):
            print(f"{place} {variant}: {why or 'not chosen'}", flush=True)
            continue
        version = str(variant.get("python", ""))
        python = LOCAL / f"python{version}"
        base = shutil.which(f"python{version}")
        if base is None:
            print(f"{place} {variant}: no python{version} here, this one instead", flush=True)
        if not (python / "bin" / "python").exists():
            subprocess.run([base or sys.executable, "-m", "venv", str(python)], check=True)
        tag = os.environ.get("GITHUB_REF_NAME", "v0")
        environment = os.environ | {"PATH": f"{python / 'bin'}{os.pathsep}{os.environ['PATH']}", "GITHUB_REF_NAME": tag,
                                    **{key: str(value) for key, value in workflow.get("env", {}).items()}}
        environment.pop("PYTHONPATH", None)
        for step in job["steps"]:
            keep = re.match(r"actions/(upload|download)-artifact@", step.get("uses", ""))
            if keep and "if" not in step:
                here, kept = ROOT / step["with"]["path"], LOCAL / step["with"]["name"]
                source, aim = (here, kept) if keep[1] == "upload" else (kept, here)
                shutil.copytree(source, aim, dirs_exist_ok=True)
            if "run" in step:
                script = next(commands({"steps": [step]}, variant))
                print(f"$ {script}", flush=True)
                code = subprocess.run(["bash", "-eo", "pipefail", "-c", script], cwd=ROOT, env=environment,
                                      check=False).returncode
                if code:
                    return code
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--list", action="store_true", help="print the commands of every job")
    parser.add_argument("--run", metavar="WORKFLOW/JOB", help="run the commands of a job here")
    parser.add_argument("--with", metavar="NAME=VALUE", action="append", default=[], dest="chosen",
                        help="only where the job's matrix has this value")
    options = parser.parse_args()
    if options.run:
        return run(options.run, dict(value.split("=", 1) for value in options.chosen))
    if options.list:
        for name, workflow in workflows().items():
            for title, job in workflow["jobs"].items():
                for variant in variants(job):
                    print(f"{name}/{title} {variant or ''}: {runs_here(job, variant) or 'runs here'}")
                    for script in commands(job, variant):
                        print("    " + script.strip().replace("\n", "\n    "))
        return 0
    wrong = problems()
    print("\n".join(wrong) or "our rules: right")
    failed = bool(wrong)
    for title, command in tools():
        if command is None:
            print(f"{title}: not checked, `pip install check-jsonschema zizmor`")
            continue
        result = subprocess.run(command, capture_output=True, text=True, check=False)
        print(f"{title}: {'right' if result.returncode == 0 else result.stdout + result.stderr}")
        failed |= result.returncode != 0
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
