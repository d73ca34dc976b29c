"""Run the engine's fuzz targets on modules that were compiled elsewhere: ``sanitized_run FOLDER SECONDS``.

For `test_sanitizers`, in a process of its own: FOLDER has the modules with the sanitizers in them.
"""

import sys
from importlib import import_module
from pathlib import Path

from sprocket.engine.choice import MODULES

folder, seconds = sys.argv[1], float(sys.argv[2])
for package in {name.rpartition(".")[0] for name in MODULES}:
    import_module(package).__path__.insert(0, str(Path(folder, *package.split("."))))

from tests.fuzz.all_targets import TWIN_TARGETS  # noqa: E402
from tests.fuzz.mutation_run import run_for  # noqa: E402

for name in MODULES:
    module = import_module(name)
    assert str(module.__file__).startswith(folder), module.__file__
for target in TWIN_TARGETS:
    for seed in target.seeds:
        target.run(seed)
    run = run_for(target, seconds, seed=1, memory_every=1 << 40)
    assert not run.findings, run.findings
    print(f"{target.name}: {run.inputs} inputs")
