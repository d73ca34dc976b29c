"""Bugs to plant in what people type: commands and the demo."""

from typing import Final

from tests.mutants.mutant import Mutant

COMMAND_MUTANTS: Final = (
    Mutant(
        "topic shrinks unasked",
        "sprocket_cli/commands/cluster_commands.py",
        "    if not force:\n        topic_change.refuse_shrinking(",
        "    if False:\n        topic_change.refuse_shrinking(",
        "messages of the last queues become unreachable, and nobody is told",
        ("tests/sprocket_cli/test_topic_commands.py",),
    ),
    Mutant(
        "topic loses its attributes with an update",
        "sprocket_cli/commands/topic_change.py",
        "TopicConfig(topic) if present is None else",
        "TopicConfig(topic) if True else",
        "a change of the number of queues takes permissions back to the default",
        ("tests/sprocket_cli/test_topic_commands.py",),
    ),
    Mutant(
        "refusal behind a failed send not seen",
        "sprocket_cli/permission.py",
        "        error = error.__cause__\n",
        "        error = None\n",
        "a send without permission advises to check that a broker is writable",
        ("tests/sprocket_cli/test_permission.py",),
    ),
    Mutant(
        "demo sends everything before the broker is back",
        "examples/demo/sending.py",
        "        return max(_TRICKLE_S, left_s / left) if left_s > 0 else 0.0\n",
        "        return _TRICKLE_S if left_s > 0 else 0.0\n",
        "the check of the killed broker fails on a busy machine",
        ("tests/demo/test_sending.py",),
    ),
)
