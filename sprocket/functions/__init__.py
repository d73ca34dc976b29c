"""Light functions: asyncio handlers that read topics, keep state by key, and send what they return, exactly once.

`sprocket function deploy FILE` stores the code in the cluster, `sprocket function run` runs it; see docs/functions.md.
"""

from sprocket.functions.context import Context, State
from sprocket.functions.declaration import Function, Retries, function
from sprocket.functions.deployments import create_topics
from sprocket.functions.host import FunctionHost
from sprocket.functions.windows import Tumbling, Window

__all__ = ["Context", "Function", "FunctionHost", "Retries", "State", "Tumbling", "Window", "create_topics", "function"]
