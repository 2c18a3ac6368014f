"""All ranks of an MPI world add up their numbers, and each says who it is."""
from mpi4py import MPI

world = MPI.COMM_WORLD
print(f"rank {world.rank} of {world.size}: together {world.allreduce(world.rank)}", flush=True)
