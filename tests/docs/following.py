"""Follows a page as a reader does: writes its files, runs its commands in order, and compares their output.

Files are in fences after a line that names them (see `edit`). Commands are in `console` fences (see
scripts/console.py), or in indented blocks that begin with the name of a program. `kopf run`, `kopf dev`,
`kopf cluster` and programs of examples stay in the background; `text` fences after them are lines of their
logs. An indented block after `kubectl get ... -o yaml` is a part of what is got.
"""

import ast
import functools
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import sysconfig
import threading
import time
import venv
from typing import Any

import yaml

from scripts import console

ROOT = pathlib.Path(__file__).resolve().parents[2]

TIMEOUT = 120.0
PAUSE = 0.5
INSTALL_TIMEOUT = 400.0  # pip unpacks and compiles thousands of modules, next to other tests
FENCE = re.compile(r"(?:^(?P<before>[^\n]+)\n\n)?^```(?P<kind>\w+)\n(?P<text>.*?)^```", re.M | re.S)
INDENTED = re.compile(r"(?:^    [^\n]*\n)+", re.M)
NAMED = re.compile(r"`((?:[\w./-]+\.(?:py|yaml))|Dockerfile)`:$")
FUNCTION = re.compile(r"(Replace|Add before) the function `(\w+)` in ")
PROGRAM = re.compile(r"(?:\$ )?(?:kubectl|kopf|pytest|pip|export|make|curl|python) ")
STAYS = re.compile(r"kopf (?:run|dev|cluster)\b|python examples/")
READY = "Initial authentication has finished"
ENVIRONMENT = ".environment"
# Python compiles the modules that it imports, pip all of them: client libraries have thousands. pip sets its
# option `compile` to the value of this variable.
NO_COMPILATION = {"PIP_NO_COMPILE": "0"}
# pip has another home for each reader, but downloads each package once.
DOWNLOADS = {
    "PIP_CACHE_DIR": os.environ.get("PIP_CACHE_DIR", os.path.expanduser("~/.cache/pip")),
    **NO_COMPILATION,
}


class Background:
    """A running command, and the lines that it has written so far."""

    def __init__(self, command: str, folder: pathlib.Path, env: dict[str, str]) -> None:
        self.lines: list[str] = []
        self.seen = 0
        self._more = threading.Condition()
        self.process = subprocess.Popen(
            f"exec {command}",
            shell=True,
            cwd=folder,
            env=env,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            with self._more:
                self.lines.append(line)
                self._more.notify_all()

    def expect(self, shown: str) -> None:
        """Wait for the line, after those of the previous waits."""

        def find() -> bool:
            for number, line in enumerate(self.lines[self.seen :], self.seen + 1):
                if shown.strip() in line or console.is_shown(shown, line):
                    self.seen = number
                    return True
            return False

        with self._more:
            assert self._more.wait_for(find, TIMEOUT), f"{shown!r} is not in:\n{''.join(self.lines)}"

    def wait_for_output(self, timeout: float) -> None:
        """Wait for another line, at most `timeout` seconds."""
        with self._more:
            self._more.wait(timeout)

    def stop(self) -> int:
        self.process.send_signal(signal.SIGINT)
        try:
            return self.process.wait(TIMEOUT)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise AssertionError(f"It has not stopped:\n{''.join(self.lines)}") from None
        finally:
            # It ends when no process has the pipe: an operator can outlive a killed `kopf dev`.
            self._reader.join(TIMEOUT)
            if not self._reader.is_alive():
                assert self.process.stdout is not None
                self.process.stdout.close()


class Reader:
    """A reader with an empty folder, the package that is tested, and `kubectl` if there is one.

    With `pip`, a program for Python, the environment has no packages: the page must install them. With
    `start`, it has the packages of the environment of another such reader.
    """

    def __init__(
        self,
        folder: pathlib.Path,
        kubectl: str | None,
        *,
        pip: pathlib.Path | None = None,
        start: pathlib.Path | None = None,
        **environment: str,
    ) -> None:
        self.folder = folder
        self.background: list[Background] = []
        self._is_empty = pip is not None
        environment_folder = folder / ENVIRONMENT
        venv.create(environment_folder, with_pip=False)
        programs = environment_folder / "bin"
        excluded = {"KUBECONFIG", "KOPF_COMPAT"}
        if self._is_empty:
            program = programs / "pip"
            program.write_text(f'#!/bin/sh\nexec {sys.executable} {pip} --python {programs}/python "$@"\n')
            program.chmod(0o755)
            excluded |= {"PYTHONPATH", "PYTHONDONTWRITEBYTECODE"}
            environment = DOWNLOADS | environment
        else:
            self._share(environment_folder)
        if start is not None:
            copy_packages(start, environment_folder)
        if kubectl is not None:
            (programs / "kubectl").symlink_to(kubectl)
        usual = {key: value for key, value in os.environ.items() if key not in excluded}
        # The tests may run in an active environment, whose programs the reader must not find.
        others = [
            it for it in usual["PATH"].split(os.pathsep) if not os.path.exists(os.path.join(it, "kopf"))
        ]
        path = os.pathsep.join([str(programs), *others])
        # An empty home: there is no kubeconfig in it.
        self.env = usual | {"PATH": path, "HOME": str(folder), "PYTHONUNBUFFERED": "1"} | environment

    @staticmethod
    def _share(environment: pathlib.Path) -> None:
        """Add all that is installed where the tests run, and after it the client libraries."""
        sites = filter(None, [sysconfig.get_path("purelib"), os.environ.get("KOPF_OPERATORS_SITE")])
        [packages] = environment.glob("lib/python*/site-packages")
        lines = [f"import site; site.addsitedir({site!r})\n" for site in sites]
        (packages / "others.pth").write_text("".join(lines))
        for name in ("kopf", "pytest"):
            program = environment / "bin" / name
            program.write_text(f'#!/bin/sh\nexec {environment}/bin/python -m {name} "$@"\n')
            program.chmod(0o755)

    def close(self) -> None:
        while self.background:
            self.background.pop().stop()

    def follow(self, page: str) -> int:
        """Do all that the page shows; how many commands that were."""
        done = 0
        got: str | None = None
        for kind, before, text in blocks_of(page):
            named = NAMED.search(before)
            if named and kind in ("python", "yaml", "dockerfile"):
                write(self.folder / named[1], text, before)
            elif kind == "text" and self.background:
                for line in text.splitlines():
                    self.background[-1].expect(line)
            elif kind == "console":
                commands = [step for step in console.steps_of(f"```console\n{text}```\n")]
                for command in commands:
                    assert isinstance(command, console.Command)
                    self.run(command.text, command.shown)
                    done += 1
            elif kind == "indented" and PROGRAM.match(text):
                for line in text.splitlines():
                    if PROGRAM.match(line):
                        got = line.removeprefix("$ ")
                        self.run(got, [])
                        done += 1
            elif kind == "indented" and got is not None and got.endswith("-o yaml"):
                self.expect_part(got, yaml.safe_load(text))
        return done

    def run(self, command: str, shown: list[str]) -> None:
        exported = re.fullmatch(r"export (\w+)=(\S+)", command)
        if exported:
            self.env[exported[1]] = exported[2]
        elif STAYS.match(command):
            self.background.append(Background(command, self.folder, self.env))
            for line in [line for line in shown if line.strip() != "..."] or [READY]:
                self.background[-1].expect(line)
        elif command.startswith("make "):
            pass  # dist/ has the wheel
        elif self._is_empty or not command.startswith("pip install "):  # the environment has it all
            self._compare(command, shown)

    def _compare(self, command: str, shown: list[str]) -> None:
        until = time.monotonic() + TIMEOUT
        while True:
            code, output = self.call(command)
            wrong = console.difference(shown, output.splitlines()) if shown else None
            if (code != 0) == console.shows_failure(shown) and wrong is None:
                return
            # Commands that read are repeated until the output matches; commands that write run once.
            if not command.startswith(("kubectl get ", "kopf status ")) or time.monotonic() > until:
                raise AssertionError(f"{command}: exit code {code}\n{wrong or ''}\n{output}\n{self.logs()}")
            self._wait_for_operator()

    def expect_part(self, command: str, part: Any) -> None:
        """Wait until what is got contains the part."""
        until = time.monotonic() + TIMEOUT
        while True:
            code, output = self.call(command)
            if code == 0 and contains(yaml.safe_load(output), part):
                return
            assert time.monotonic() < until, f"{part} is not in {output}\n{self.logs()}"
            self._wait_for_operator()

    def _wait_for_operator(self) -> None:
        """Leave the processor to the operator until it logs something, for a moment at most."""
        if self.background:
            self.background[-1].wait_for_output(PAUSE)

    def call(self, command: str) -> tuple[int, str]:
        done = subprocess.run(
            command,
            shell=True,
            cwd=self.folder,
            env=self.env,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=INSTALL_TIMEOUT if command.startswith("pip ") else TIMEOUT,
        )
        return done.returncode, done.stdout

    def logs(self) -> str:
        return "".join(line for one in self.background for line in one.lines)


def copy_packages(source: pathlib.Path, target: pathlib.Path) -> None:
    """Copy the packages and the programs of an environment.

    The files are linked: pip replaces files, and never writes into them.
    """
    [old], [new] = ([*folder.glob("lib/python*/site-packages")] for folder in (source, target))
    shutil.copytree(old, new, copy_function=os.link, dirs_exist_ok=True)
    for program in (source / "bin").iterdir():
        copy = target / "bin" / program.name
        if not os.path.lexists(copy):
            copy.write_text(program.read_text().replace(str(source), str(target)))
            copy.chmod(0o755)


def blocks_of(page: str) -> list[tuple[str, str, str]]:
    """The blocks of a page in their order: the kind, the line before, the text."""
    found = [
        (match.start(), match["kind"], match["before"] or "", match["text"]) for match in FENCE.finditer(page)
    ]
    rest = FENCE.sub(lambda match: "\n" * len(match[0]), page)  # the places stay
    for match in INDENTED.finditer(rest):
        text = "".join(line.removeprefix("    ") for line in match[0].splitlines(keepends=True))
        found.append((match.start(), "indented", "", text))
    return [(kind, before, text) for _, kind, before, text in sorted(found)]


def write(path: pathlib.Path, text: str, instruction: str) -> None:
    """Write or edit a file as the line before its text instructs."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(edit(path.read_text() if path.exists() else "", text, instruction))


def edit(current: str, text: str, instruction: str) -> str:
    """The content of a file after an instruction.

    Instructions: write or replace the file (the default); add to its end; replace its imports, and the text
    above them; replace a function; add before a function.
    """
    if instruction.startswith("Add to") or " Add to " in instruction:
        return f"{current}\n\n{text}"
    lines = current.splitlines(keepends=True)
    function = FUNCTION.match(instruction)
    if function:
        [node] = [node for node in ast.parse(current).body if getattr(node, "name", None) == function[2]]
        assert isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and node.end_lineno is not None
        first = min(it.lineno for it in [node, *node.decorator_list]) - 1
        if function[1] == "Replace":
            return "".join([*lines[:first], text, *lines[node.end_lineno :]])
        return "".join([*lines[:first], f"{text}\n\n", *lines[first:]])
    if instruction.startswith("Replace the imports of "):
        imports = [it for it in ast.parse(current).body if isinstance(it, (ast.Import, ast.ImportFrom))]
        return "".join([text, *lines[imports[-1].end_lineno :]])
    return text


def files_of(pages: list[str], folder: pathlib.Path) -> None:
    """Write the files of the pages, without running any command."""
    for page in pages:
        for kind, before, text in blocks_of(page):
            named = NAMED.search(before)
            if named and kind in ("python", "yaml", "dockerfile"):
                write(folder / named[1], text, before)


def contains(whole: Any, part: Any) -> bool:
    """Whether everything of the part is in the whole."""
    if isinstance(part, dict):
        return isinstance(whole, dict) and all(
            key in whole and contains(whole[key], value) for key, value in part.items()
        )
    return bool(whole == part)


@functools.cache
def find_kubectl() -> str | None:
    done = subprocess.run([ROOT / "scripts" / "kubectl.sh"], capture_output=True, text=True, timeout=170)
    return done.stdout.strip() if done.returncode == 0 else shutil.which("kubectl")
