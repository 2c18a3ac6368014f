"""Is torchrun. A build without libuv cannot run it with c10d, which asks for libuv by name; here it is not asked."""
import os

import torch.distributed as dist
from torch.distributed.elastic.rendezvous import c10d_rendezvous_backend
from torch.distributed.run import main


class ClassicStore(dist.TCPStore):
    def __init__(self, *args, **kwargs):
        super().__init__(*args, use_libuv=False, **kwargs)


if os.environ.get("USE_LIBUV") == "0":
    dist.TCPStore = c10d_rendezvous_backend.TCPStore = ClassicStore
main()
