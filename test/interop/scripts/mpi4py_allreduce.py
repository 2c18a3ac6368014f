"""One step of gradient descent on a line, its gradients averaged by MPI over all ranks."""
import os

from mpi4py import MPI

world = MPI.COMM_WORLD
size, rank = ("WORLD_SIZE", "RANK") if "RANK" in os.environ else ("OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK")  # by muster, or by mpirun
assert world.size == int(os.environ[size]) == 4, world.size
assert world.rank == int(os.environ[rank]), world.rank
near = world.Split_type(MPI.COMM_TYPE_SHARED)
assert near.size == 2, near.size
library = MPI.Get_library_version().strip().replace("\x00", "").split("\n")[0]

x = 1.0 + world.rank
grad = world.allreduce(2 * (0.0 - 3) * x**2) / world.size  # of (w*x - 3*x)**2 at w = 0
w = 0.0 - 0.01 * grad
# The mean of x*x over 1, 2, 3, 4 is 7.5: one step of 0.01 from 0 to 3 goes 0.45.
assert abs(w - 0.45) < 1e-9, w
assert world.allgather(w) == [w] * 4
os.write(1, f"rank {world.rank} of {world.size}: w {w:.6f} by {library}\n".encode())  # at once, for another rank writes to the same pipe
