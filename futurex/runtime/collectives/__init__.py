"""Collective operations between localities: in shared memory inside a host, by messages elsewhere."""

from futurex.runtime.collectives.communicator import Communicator
from futurex.runtime.collectives.mailbox import Correspondence
from futurex.runtime.collectives.messages import MessageCollectives
from futurex.runtime.collectives.model import Model
from futurex.runtime.collectives.operation import Collective, CollectiveError, CollectiveTimeout
from futurex.runtime.collectives.shared import SharedGroup
from futurex.runtime.collectives.shared_arrays import SharedCollectives

__all__ = [
    "Collective",
    "CollectiveError",
    "CollectiveTimeout",
    "Communicator",
    "Correspondence",
    "MessageCollectives",
    "Model",
    "SharedCollectives",
    "SharedGroup",
]
