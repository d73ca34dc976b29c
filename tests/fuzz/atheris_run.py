"""`python -m tests.fuzz.atheris_run TARGET --seconds N`: a long run of one target, or of `all`.

Guided by coverage where atheris is installed (`pip install '.[fuzz]'`); else, and with `--engine mutation`, seeds are
mutated without guidance, and it says so.  `--corpus DIR` keeps what atheris finds worth keeping; findings are written
beside it as ``TARGET-crash-*``, and shown.  Ends with status 1 when there is a finding.
"""

import argparse
import importlib.util
import logging
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.fuzz.all_targets import TARGETS
from tests.fuzz.mutation_run import run_for

# Inputs are small: what a decoder does with a long one it does with a short one, and lengths may lie.
_MOST_BYTES = 4096
_MOST_RSS_MIB = 2048


def guided(name: str, seconds: int, corpus: Path, seed: int) -> int:
    """Run atheris in a process of its own, which it ends itself; its status."""
    target = TARGETS[name]
    corpus.mkdir(parents=True, exist_ok=True)
    for number, content in enumerate(target.seeds):
        (corpus / f"seed-{number}").write_bytes(content)
    code = (
        "import atheris, logging, sys\n"
        "logging.disable(logging.CRITICAL)\n"
        "with atheris.instrument_imports(include=['remoting', 'acl', 'broker', 'store', 'ha', 'sprocket', 'yaml']):\n"
        "    from tests.fuzz.all_targets import TARGETS\n"
        f"atheris.Setup(sys.argv, TARGETS[{name!r}].run)\n"
        "atheris.Fuzz()\n"
    )
    options = [
        f"-max_total_time={seconds}",
        f"-seed={seed}",
        f"-max_len={_MOST_BYTES}",
        f"-rss_limit_mb={_MOST_RSS_MIB}",
    ]
    options += ["-print_final_stats=1", "-verbosity=0", "-timeout=20", f"-artifact_prefix={corpus.parent}/{name}-"]
    done = subprocess.run([sys.executable, "-c", code, *options, str(corpus)], stderr=subprocess.PIPE, text=True)
    figures = [line for line in done.stderr.splitlines() if "number_of_executed_units" in line or "peak_rss" in line]
    print(f"target={name} engine=atheris seed={seed} status={done.returncode} {' '.join(figures)}", flush=True)
    if done.returncode:
        print(done.stderr[-4000:], flush=True)
    return done.returncode


def unguided(name: str, seconds: int, seed: int) -> int:
    """Mutate the target's seeds; 1 when there is a finding."""
    run = run_for(TARGETS[name], seconds, seed)
    print(
        f"target={name} engine=mutation seed={seed} inputs={run.inputs} bytes_per_byte={run.peak_ratio:.0f} "
        f"findings={len(run.findings)}",
        flush=True,
    )
    for what, data in run.findings.items():
        print(f"  {what}\n  {data!r}", flush=True)
    return 1 if run.findings else 0


def main() -> int:
    """Read the command line and run."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.atheris_run", description=__doc__)
    parser.add_argument("target", choices=[*TARGETS, "all"])
    parser.add_argument("--seconds", type=int, default=60, help="for each target")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--engine", choices=["atheris", "mutation"], default="atheris")
    parser.add_argument("--corpus", type=Path, default=None, help="a directory, which has one for each target")
    given = parser.parse_args()
    logging.disable(logging.CRITICAL)
    engine = given.engine
    if engine == "atheris" and importlib.util.find_spec("atheris") is None:
        print("atheris is not installed (pip install '.[fuzz]'); seeds are mutated without guidance", file=sys.stderr)
        engine = "mutation"
    worst = 0
    with tempfile.TemporaryDirectory() as folder:
        corpus: Path = given.corpus or Path(folder)
        for name in TARGETS if given.target == "all" else [given.target]:
            if engine == "atheris":
                status = guided(name, given.seconds, corpus / name, given.seed)
            else:
                status = unguided(name, given.seconds, given.seed)
            worst = max(worst, 1 if status else 0)
    return worst


if __name__ == "__main__":
    sys.exit(main())
