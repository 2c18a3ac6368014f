"""Reads a rendezvous state as torchrun's agent does, checks its types, and writes it again as that would.

echo_state.py FROM TO PARTICIPANTS
"""
import base64
import pickle
import sys
from datetime import datetime

from torch.distributed.elastic.rendezvous.dynamic_rendezvous import _NodeDesc, _RendezvousState

with open(sys.argv[1], "rb") as f:
    state = pickle.loads(base64.b64decode(f.read()))
assert type(state) is _RendezvousState
assert vars(state).keys() == vars(_RendezvousState()).keys(), vars(state).keys()
assert len(state.participants) == int(sys.argv[3])
assert all(type(node) is _NodeDesc for node in state.participants)
now = datetime.utcnow() if state.deadline.tzinfo is None else datetime.now(state.deadline.tzinfo)
assert all(beat < now for beat in state.last_heartbeats.values())
with open(sys.argv[2], "wb") as f:
    f.write(base64.b64encode(pickle.dumps(state)))
