"""Is torchrun."""
from torch.distributed.run import main

main()
