package evidence

import "github.com/muster-run/muster/job"

// A row is one error text that a program is known to print.
type row struct {
	kind   string // key of kinds
	text   string // parts of one line in this order, "…" between them; "^": from its beginning, "$": to its end
	weight weight
	source string // who prints it: file of the project, or what printed it in our hands
}

// weight is how much a text counts.
type weight int

const (
	atEnd    weight = iota // harmless lines may have it too: it counts in what the process died of
	anywhere               // nobody lives on after it: it counts in all last lines
	wrapper                // says only that something else failed: it counts when nothing better is found
)

// Kinds that Explain knows more about than their text.
const (
	loaderBus    = "loader-bus"
	loaderKilled = "loader-killed"
	sharedFull   = "shared-memory-full"
	diskFull     = "disk-full"
	outOfMemory  = job.OOM
	diskWrite    = "checkpoint-write"
)

// signatures is all that is recognised. Of several that fit the first counts: what began a death stands before what
// followed from it, and the narrow before the wide. Python's own ConnectionResetError and BrokenPipeError are left
// out on purpose: they may as well be a download's, and then nobody else is to blame.
var signatures = []row{
	// Before main.
	{"shared-library", "error while loading shared libraries:", anywhere, "glibc elf/dl-error-skeleton.c"},
	{"shared-library", "^ImportError: …: cannot open shared object file: No such file or directory", atEnd, "glibc elf/dl-load.c, by way of Python"},
	{"shared-library", "^OSError: …: cannot open shared object file: No such file or directory", atEnd, "glibc elf/dl-load.c, by way of Python's ctypes"},
	{"libc-version", ": version `GLIBC_…' not found (required by ", anywhere, "glibc elf/dl-version.c"},
	{"libc-version", ": version `GLIBCXX_…' not found (required by ", anywhere, "glibc elf/dl-version.c"},
	{"library-mismatch", "symbol lookup error: …: undefined symbol: ", anywhere, "glibc elf/dl-lookup.c"},
	{"library-mismatch", "^ImportError: …: undefined symbol: ", atEnd, "glibc elf/dl-lookup.c, by way of Python"},
	{"script-missing", ": can't open file '…[Errno 2]", anywhere, "CPython Modules/main.c"},
	{"module-missing", "ModuleNotFoundError: No module named ", atEnd, "CPython Lib/importlib/_bootstrap.py"},
	{"module-missing", "/python…: No module named ", atEnd, "CPython Lib/runpy.py, `python -m`"},
	{"import", "ImportError: cannot import name ", atEnd, "CPython Python/ceval.c"},
	{"libuv", "use_libuv was requested but PyTorch was buil…without libuv support", atEnd, "PyTorch torch/csrc/distributed/c10d/TCPStore.cpp, with and without a typing error"},
	{"syntax", "^SyntaxError: ", atEnd, "CPython Parser/pegen_errors.c"},
	{"syntax", "^IndentationError: ", atEnd, "CPython Parser/tokenizer"},
	{"arguments", ": error: unrecognized arguments: ", atEnd, "CPython Lib/argparse.py"},
	{"arguments", ": error: the following arguments are required: ", atEnd, "CPython Lib/argparse.py"},
	{"arguments", ": error: argument …: ", atEnd, "CPython Lib/argparse.py"},

	// The GPU. These errors end every CUDA context: nothing goes on after them.
	{"gpu-memory", "CUDA out of memory.", atEnd, "PyTorch c10/cuda/CUDACachingAllocator.cpp"},
	{"gpu-memory", "CUDA error: out of memory", atEnd, "PyTorch c10/cuda/CUDAException.cpp, CUDA error 2"},
	{"gpu-memory", "RESOURCE_EXHAUSTED: Out of memory while trying to allocate", atEnd, "XLA, under JAX"},
	{"gpu-memory", "OOM when allocating tensor with shape…device:GPU", atEnd, "TensorFlow core/framework/op_kernel.cc"},
	{"gpu-memory", "Out of memory error on GPU ", atEnd, "Paddle phi/core/memory/allocation/cuda_allocator.cc"},
	{"gpu-assert", "CUDA error: device-side assert triggered", anywhere, "CUDA error 710"},
	{"gpu-access", "CUDA error: an illegal memory access was encountered", anywhere, "CUDA error 700"},
	{"gpu-access", "CUDA error: misaligned address", anywhere, "CUDA error 716"},
	{"gpu-access", "CUDA error: an illegal instruction was encountered", anywhere, "CUDA error 715"},
	{"gpu-access", "CUDA error: unspecified launch failure", anywhere, "CUDA error 719"},
	{"gpu-ecc", "CUDA error: uncorrectable ECC error encountered", anywhere, "CUDA error 214"},
	{"gpu-ecc", "CUDA error: hardware stack error", anywhere, "CUDA error 714"},
	{"nvlink", "uncorrectable NVLink error detected during the execution", anywhere, "CUDA error 220"},
	{"nvlink", "CUDA error: Invalid access of peer GPU memory over nvlink or a hardware error", anywhere, "libcudart of CUDA 13"},
	{"gpu-lost", "GPU has fallen off the bus", anywhere, "NVIDIA driver, Xid 79"},
	{"gpu-lost", "NVMLError_GpuIsLost", atEnd, "pynvml"},
	{"gpu-xid", "NVRM: Xid (PCI:", anywhere, "NVIDIA driver"},
	{"gpu-build", "CUDA error: no kernel image is available for execution on the device", anywhere, "CUDA error 209"},
	{"gpu-build", "Torch not compiled with CUDA enabled", atEnd, "PyTorch torch/cuda/__init__.py"},
	{"gpu-driver", "CUDA driver version is insufficient for CUDA runtime version", anywhere, "CUDA error 35"},
	{"gpu-driver", "The NVIDIA driver on your system is too old", atEnd, "PyTorch c10/cuda/CUDAFunctions.cpp"},
	{"gpu-driver", "system has unsupported display driver / cuda driver combination", anywhere, "CUDA error 803"},
	{"gpu-fabric", "CUDA error: system not yet initialized", anywhere, "CUDA error 802"},
	{"gpu-none", "Found no NVIDIA driver on your system", atEnd, "PyTorch c10/cuda/CUDAFunctions.cpp"},
	{"gpu-none", "No CUDA GPUs are available", atEnd, "PyTorch c10/cuda/CUDAFunctions.cpp"},
	{"gpu-none", "nccl2 requires at least one CUDA device", atEnd, "PyTorch torch/distributed/distributed_c10d.py"},
	{"gpu-number", "CUDA error: invalid device ordinal", atEnd, "CUDA error 101"},
	{"gpu-busy", "CUDA-capable device(s) is/are busy or unavailable", atEnd, "CUDA error 46"},

	// NCCL, what is its own fault and not a peer's.
	{"gpu-twice", "Duplicate GPU detected : rank ", anywhere, "NCCL src/init.cc, to 2.29"},
	{"gpu-twice", "Multiple Ranks are using the same GPU/Partition.", anywhere, "NCCL src/init.cc, from 2.30"},
	{"nccl-version", "Mismatched NCCL version detected : rank ", anywhere, "NCCL src/init.cc"},
	{sharedFull, "failed to extend /dev/shm/nccl-", anywhere, "NCCL src/misc/shmutils.cc"},
	{sharedFull, "Error while creating shared memory segment /dev/shm/nccl-", anywhere, "NCCL src/misc/shmutils.cc"},
	{"nccl-interface", "no socket interface found", anywhere, "NCCL src/bootstrap.cc"},
	{"nccl-interface", "No usable listening interface found", anywhere, "NCCL src/transport/net_socket.cc"},
	{"adapter-memory", "Got completion from peer … with status=4 ", anywhere, "NCCL src/transport/net_ib.cc, IBV_WC_LOC_PROT_ERR"},
	{"adapter-memory", "Got completion from peer … with status=IBV_WC_LOC_PROT_ERR(4)", anywhere, "NCCL src/transport/net_ib/p2p.cc, from 2.29"},
	{"memlock", "Call to ibv_…failed with error Cannot allocate memory", anywhere, "NCCL src/misc/ibvwrap.cc"},

	// Memory, files, limits.
	{loaderBus, "ERROR: Unexpected bus error encountered in worker. This might be caused by insufficient shared memory (shm).", anywhere, "PyTorch torch/csrc/DataLoader.cpp"},
	{loaderBus, "DataLoader worker (pid …) is killed by signal: Bus error", anywhere, "PyTorch torch/csrc/DataLoader.cpp"},
	{loaderKilled, "DataLoader worker (pid …) is killed by signal: Killed", anywhere, "PyTorch torch/csrc/DataLoader.cpp"},
	{sharedFull, "unable to allocate shared memory(shm) for file <…No space left on device", atEnd, "PyTorch aten/src/ATen/MapAllocator.cpp"},
	{sharedFull, "unable to write to file </torch_…No space left on device", atEnd, "PyTorch aten/src/ATen/MapAllocator.cpp, to 2.8"},
	{"open-files", "[Errno 24] Too many open files", atEnd, "CPython, EMFILE"},
	{"open-files", "unable to open shared memory object <…Too many open files", atEnd, "PyTorch aten/src/ATen/MapAllocator.cpp"},
	{"open-files", "RuntimeError: Too many open files. Communication with the workers", atEnd, "PyTorch torch/utils/data/dataloader.py"},
	{"open-files", "RuntimeError: received 0 items of ancdata", atEnd, "CPython Lib/multiprocessing/reduction.py"},
	{"processes", "^RuntimeError: can't start new thread", atEnd, "CPython Modules/_threadmodule.c"},
	{"processes", "^BlockingIOError: [Errno 11] Resource temporarily unavailable", atEnd, "CPython, EAGAIN: of fork, and hardly ever of a socket, for which programs wait"},
	{"processes", ": fork: retry: Resource temporarily unavailable", atEnd, "bash jobs.c"},
	{"processes", ": Cannot fork$", atEnd, "dash jobs.c"},
	{"processes", "OpenBLAS blas_thread_init: pthread_create failed for thread ", anywhere, "OpenBLAS driver/others/blas_server.c, before it interrupts itself"},
	{"processes", "^libgomp: Thread creation failed: ", anywhere, "GCC libgomp/team.c"},
	{"processes", "^  what():  Resource temporarily unavailable", anywhere, "libstdc++, std::thread"},
	{"memory", "DefaultCPUAllocator: can't allocate memory: you tried to allocate ", atEnd, "PyTorch c10/core/impl/alloc_cpu.cpp"},
	{"memory", "^MemoryError$", atEnd, "CPython"},
	{"memory", "^MemoryError: ", atEnd, "CPython, std::bad_alloc in an extension among them"},
	{"memory", "ArrayMemoryError: Unable to allocate ", atEnd, "NumPy numpy/_core/_exceptions.py"},
	{"memory", "^terminate called after throwing an instance of 'std::bad_alloc'", anywhere, "libstdc++ vterminate.cc"},
	{"memory", "^OSError: [Errno 12] Cannot allocate memory", atEnd, "CPython, ENOMEM"},
	{"memory", "unable to mmap …Cannot allocate memory", atEnd, "PyTorch aten/src/ATen/MapAllocator.cpp"},
	{diskFull, "[Errno 28] No space left on device", atEnd, "CPython, ENOSPC"},
	{diskFull, "[Errno 122] Disk quota exceeded", atEnd, "CPython, EDQUOT"},
	{diskWrite, "PytorchStreamWriter failed writing file", atEnd, "PyTorch caffe2/serialize/inline_container.cc"},
	{diskWrite, "enforce fail at inline_container.cc…unexpected pos ", atEnd, "PyTorch caffe2/serialize/inline_container.cc"},
	{"permission", "^PermissionError: [Errno 13] Permission denied", atEnd, "CPython, EACCES"},
	{"read-only", "[Errno 30] Read-only file system", atEnd, "CPython, EROFS"},
	{"port-taken", "The server socket has failed to listen on any local network address.…EADDRINUSE", atEnd, "PyTorch torch/csrc/distributed/c10d/socket.cpp"},
	{"port-taken", "has failed to listen on any local network address.…Address already in use", atEnd, "PyTorch torch/csrc/distributed/c10d/socket.cpp, to 2.3"},
	{"port-taken", "^OSError: [Errno 98] Address already in use", atEnd, "CPython, EADDRINUSE"},

	// The program's own.
	{"collective-mismatch", "enforce fail at …gloo/transport/tcp/pair.cc…op.preamble.length <= op.nbytes", anywhere, "gloo transport/tcp/pair.cc"},
	{"collective-mismatch", "Detected mismatch between collectives on ranks.", atEnd, "PyTorch torch/csrc/distributed/c10d/ProcessGroupWrapper.cpp"},
	{"loss", "found NaN in local forward loss calculation", atEnd, "Megatron-LM pretrain_gpt.py"},
	{"loss", "Current loss scale already at minimum - cannot decrease scale anymore", atEnd, "DeepSpeed runtime/fp16/loss_scaler.py"},
	{"loss", "oss is nan, stopping training", atEnd, "DETR's and MAE's engines, and all that follow them"},
	{"loss", "oss is inf, stopping training", atEnd, "the same"},
	{"heap", "double free or corruption", anywhere, "glibc malloc/malloc.c"},
	{"heap", "^free(): ", anywhere, "glibc malloc/malloc.c"},
	{"heap", "^malloc(): ", anywhere, "glibc malloc/malloc.c"},
	{"heap", "^corrupted size vs. prev_size", anywhere, "glibc malloc/malloc.c"},
	{"heap", "^corrupted double-linked list", anywhere, "glibc malloc/malloc.c"},

	// What follows from the death of others.
	{"peer-gone", "gloo/transport/tcp/pair.cc…Connection reset by peer", anywhere, "gloo transport/tcp/pair.cc"},
	{"peer-gone", "gloo/transport/tcp/pair.cc…Connection closed by peer", anywhere, "gloo transport/tcp/pair.cc"},
	{"peer-gone", "gloo/transport/tcp/pair.cc…Broken pipe", anywhere, "gloo transport/tcp/pair.cc"},
	{"peer-gone", "gloo/transport/tcp/pair.cc…Socket closed", anywhere, "gloo transport/tcp/pair.cc"},
	{"peer-gone", "gloo/transport/tcp/pair.cc…TIMEOUT self_rank = ", anywhere, "Paddle's gloo: where gloo itself says that the peer closed the connection"},
	{"peer-gone", "remote process exited or there was a network error", anywhere, "NCCL src/init.cc, ncclRemoteError"},
	{"peer-gone", "Connection closed by remote peer ", anywhere, "NCCL src/misc/socket.cc"},
	{"peer-gone", "NCCL communicator was aborted on rank ", anywhere, "PyTorch torch/csrc/distributed/c10d/NCCLUtils.hpp"},
	{"peer-gone", "Terminating process because the JAX distributed service detected fatal errors.", anywhere, "XLA pjrt/distributed/client.h"},
	{"link", "Got completion from peer … with status=12 ", anywhere, "NCCL src/transport/net_ib.cc"},
	{"link", "Got completion from peer … with error 12,", anywhere, "NCCL src/transport/net_ib.cc, to 2.18"},
	{"link", "Got completion from peer … with status=IBV_WC_RETRY_EXC_ERR(12)", anywhere, "NCCL src/transport/net_ib/p2p.cc, from 2.29"},
	{"store-gone", "Failed to recv, got 0 bytes. Connection was likely closed.", atEnd, "PyTorch torch/csrc/distributed/c10d/Utils.hpp"},
	{"store-gone", "failed to recv, got 0 bytes", atEnd, "the same, to 2.8"},
	{"store-gone", "Failed to send, sent 0 bytes. Connection was likely closed.", atEnd, "PyTorch torch/csrc/distributed/c10d/Utils.hpp"},
	{"store-gone", "DistNetworkError: Broken pipe", atEnd, "PyTorch torch/csrc/distributed/c10d/TCPStore.cpp"},
	{"store-gone", "DistNetworkError: Connection reset by peer", atEnd, "PyTorch torch/csrc/distributed/c10d/TCPStore.cpp"},
	{"store-gone", "^RuntimeError: Broken pipe", atEnd, "PyTorch 1.13's TCPStore"},
	{"store-gone", "^RuntimeError: Connection reset by peer", atEnd, "PyTorch 1.13's TCPStore"},
	{"store-gone", "got error: Connection reset by peer", atEnd, "PyTorch torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp"},
	{"store-gone", "got error: Broken pipe", atEnd, "PyTorch torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp"},

	// Waited for others in vain.
	{"collective-timeout", "Watchdog caught collective operation timeout: ", anywhere, "PyTorch torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp"},
	{"collective-timeout", "failed to pass monitoredBarrier in ", atEnd, "PyTorch torch/csrc/distributed/c10d/ProcessGroupGloo.cpp"},
	{"collective-timeout", "gloo/transport/tcp/…Timed out waiting ", atEnd, "gloo transport/tcp/unbound_buffer.cc"},
	{"collective-timeout", "gloo/transport/tcp/unbound_buffer.cc…TIMEOUT self_rank = ", anywhere, "the same in Paddle, whose stack of C++ comes below it"},
	{"watchdog-stuck", "ProcessGroupNCCL's watchdog got stuck for ", anywhere, "PyTorch torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp"},
	{"store-timeout", "wait timeout after …ms", atEnd, "PyTorch torch/csrc/distributed/c10d/TCPStore.cpp"},
	{"store-timeout", "Error: Socket Timeout", atEnd, "PyTorch torch/csrc/distributed/c10d/TCPStore.cpp"},
	{"store-timeout", "got error: Socket Timeout", atEnd, "PyTorch torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp"},
	{"store-timeout", "Timed out after …seconds waiting for clients.", atEnd, "PyTorch torch/csrc/distributed/c10d/TCPStore.cpp"},
	{"peers-unreachable", "Gloo connectFullMesh failed with ", atEnd, "PyTorch torch/csrc/distributed/c10d/ProcessGroupGloo.cpp"},
	{"store-unreachable", "The client socket has timed out after …while trying to connect to (", atEnd, "PyTorch torch/csrc/distributed/c10d/socket.cpp"},

	// Somebody only passes on that something failed. NCCL warns of CUDA errors that it then works around.
	{"loader-exited", "DataLoader worker (pid(s) …) exited unexpectedly", wrapper, "PyTorch torch/utils/data/dataloader.py"},
	{"loader-exited", "DataLoader worker (pid …) exited unexpectedly with exit code ", wrapper, "PyTorch torch/csrc/DataLoader.cpp"},
	{"nccl-cuda", "unhandled cuda error", wrapper, "NCCL src/init.cc, ncclUnhandledCudaError"},
	{"nccl-system", "unhandled system error", wrapper, "NCCL src/init.cc, ncclSystemError"},
	{"nccl-internal", "internal error - please report this issue to the NCCL developers", wrapper, "NCCL src/init.cc, ncclInternalError"},
	{"nccl-usage", "ncclInvalidUsage: ", wrapper, "PyTorch torch/csrc/distributed/c10d/NCCLUtils.cpp"},
	{"nccl-usage", "ncclInvalidArgument: ", wrapper, "PyTorch torch/csrc/distributed/c10d/NCCLUtils.cpp"},
	{"c++", "^terminate called after throwing an instance of ", wrapper, "libstdc++ vterminate.cc"},
}

const moreShared = "give the container more of it: docker --shm-size=16g, or in Kubernetes an emptyDir with medium Memory at /dev/shm"

// kinds says of each kind what it means, what to do, and whether it follows from others.
var kinds = map[string]struct {
	means, do           string
	consequence, waited bool
}{
	"shared-library":   {means: "a shared library is missing", do: "install it in the image, or add its directory to LD_LIBRARY_PATH"},
	"libc-version":     {means: "it was built for a newer system than this image", do: "use an image with a newer C library, or a build for an older one"},
	"library-mismatch": {means: "two libraries do not fit together", do: "rebuild the extension against the installed PyTorch and CUDA; look for a second copy in LD_LIBRARY_PATH or LD_PRELOAD"},
	"script-missing":   {means: "the script is not there", do: "check the path, the working directory and the volumes of this node"},
	"module-missing":   {means: "a Python module is not installed", do: "install it in the image; check that this interpreter is the one it was installed for, and PYTHONPATH"},
	"libuv":            {means: "this PyTorch was built without libuv, which its store is to use", do: "set USE_LIBUV=0, and where that is set --worker-store rank0; wheels from PyPI have libuv"},
	"import":           {means: "a Python module lacks what is imported from it", do: "check its version, and that no file of the job has the module's name"},
	"syntax":           {means: "the script is not valid Python", do: "check it against this image's version of Python"},
	"arguments":        {means: "the script refused its arguments", do: "compare the command line with the script's --help"},

	"gpu-memory": {means: "the GPU's memory was not enough", do: "use a smaller batch, activation checkpointing or more sharding; look for other processes on that GPU"},
	"gpu-assert": {means: "a check inside a GPU kernel failed", do: "look for an index out of range, most often a label or a token beyond the table; CUDA_LAUNCH_BLOCKING=1 shows where"},
	"gpu-access": {means: "a kernel on the GPU crashed", do: "run it with CUDA_LAUNCH_BLOCKING=1 or compute-sanitizer to see where; if it moves with the GPU, suspect the GPU"},
	"gpu-ecc":    {means: "the GPU's memory is damaged", do: "take this node out of the job, and reset or replace the GPU"},
	"nvlink":     {means: "a link between GPUs failed", do: "take this node out of the job, and have its NVLinks and fabric manager checked"},
	"gpu-lost":   {means: "the GPU was lost", do: "take this node out of the job: it needs a reset, often a power cycle"},
	"gpu-xid":    {means: "the GPU's driver reported an error", do: "look the Xid number up in NVIDIA's list; if it comes again on this node, take it out"},
	"gpu-build":  {means: "this build does not support the GPU here", do: "install a build of PyTorch (and extensions) with CUDA for this GPU's architecture"},
	"gpu-driver": {means: "the GPU's driver does not fit the CUDA libraries", do: "update the node's driver, or use an image with an older CUDA; look for a stale libcuda in LD_LIBRARY_PATH"},
	"gpu-fabric": {means: "the GPUs' fabric is not up", do: "start nvidia-fabricmanager on the node, in the driver's own version"},
	"gpu-none":   {means: "there is no GPU here", do: "request GPUs for the pod and the NVIDIA runtime for the container; check CUDA_VISIBLE_DEVICES"},
	"gpu-number": {means: "it asked for a GPU that is not here", do: "start no more workers than GPUs; check CUDA_VISIBLE_DEVICES, and that the script takes LOCAL_RANK"},
	"gpu-busy":   {means: "the GPU is taken", do: "look for leftovers of an earlier job in nvidia-smi, and for exclusive compute mode"},

	"gpu-twice":      {means: "two ranks chose the same GPU", do: "call torch.cuda.set_device(LOCAL_RANK) first; start no more workers than GPUs"},
	"nccl-version":   {means: "the nodes have different versions of NCCL", do: "use one image on all nodes, and look for a second libnccl in LD_LIBRARY_PATH"},
	"nccl-interface": {means: "NCCL found no network interface", do: "check NCCL_SOCKET_IFNAME against the interfaces of this node"},
	"adapter-memory": {means: "the network adapter could not use the GPU's memory", do: "check nvidia-peermem, the IOMMU and PCIe ACS on the node; NCCL_NET_GDR_LEVEL=LOC goes without"},
	"memlock":        {means: "the network adapter could not lock memory", do: "raise `ulimit -l`: docker --ulimit memlock=-1, or the capability IPC_LOCK in Kubernetes"},
	"nccl-cuda":      {means: "a CUDA call of NCCL failed", do: "look for the first NCCL WARN among its lines; with NCCL_DEBUG=WARN if there is none"},
	"nccl-system":    {means: "a system call of NCCL failed", do: "look for the first NCCL WARN among its lines; often /dev/shm or `ulimit -l` is too small"},
	"nccl-internal":  {means: "NCCL failed", do: "look for the first NCCL WARN among its lines, and for another rank that failed earlier"},
	"nccl-usage":     {means: "NCCL was used in a wrong way", do: "look for the first NCCL WARN among its lines"},

	loaderBus:       {means: "a data-loader worker found no room in shared memory", do: moreShared},
	loaderKilled:    {means: "a data-loader worker was killed", do: "most often for want of memory: use fewer data-loader workers, or raise the container's memory limit"},
	"loader-exited": {means: "a data-loader worker ended", do: "look for its own error above, or run with num_workers=0 to see it"},
	sharedFull:      {means: "shared memory ran out", do: moreShared},
	"open-files":    {means: "it had too many files open", do: "raise `ulimit -n`, or call torch.multiprocessing.set_sharing_strategy('file_system')"},
	"processes":     {means: "it could start no more processes or threads", do: "raise the container's pids.max (docker --pids-limit, podPidsLimit of the kubelet) or `ulimit -u`, or use fewer data-loader workers and OMP_NUM_THREADS"},
	"memory":        {means: "the machine's memory was not enough", do: "load less at a time, use fewer data-loader workers; check `ulimit -v` and the container's memory limit"},
	diskFull:        {means: "a file system is full", do: "delete old checkpoints, logs and caches, or give it more room"},
	diskWrite:       {means: "a checkpoint could not be written, most often because its file system is full", do: "delete old checkpoints, or write to a file system with more room"},
	"permission":    {means: "it may not read or write a file", do: "check the owner and mode of the file, and which user the container runs as"},
	"read-only":     {means: "it wrote to a read-only file system", do: "mount a volume there, or set HOME, TMPDIR or the cache's own variable to a place that can be written"},
	"port-taken":    {means: "another program has the port", do: "look for a leftover of an earlier run; choose another port, or none, so that muster finds one"},

	"collective-mismatch": {means: "the ranks called different collectives, or with different sizes", do: "look for code that only some ranks run, and for uneven batches; TORCH_DISTRIBUTED_DEBUG=DETAIL names the call"},
	"loss":                {means: "the loss is NaN or infinite", do: "go back to an earlier checkpoint with a smaller learning rate, and look at the data of that step; if it happens on one node only, suspect its GPU"},
	"heap":                {means: "native code damaged its memory", do: "look for an extension built for another PyTorch; run it with PYTHONFAULTHANDLER=1 to see where"},
	"c++":                 {means: "an error in native code was not handled", do: "read the line that begins with what()"},

	"peer-gone":  {means: "another worker had gone first", do: "look at the worker that failed first", consequence: true},
	"link":       {means: "another worker had gone first, or the network between the two failed", do: "look at the worker that failed first; if none did, at the adapters' link_downed counters on both nodes", consequence: true},
	"store-gone": {means: "the store of rank 0 had gone first", do: "look at rank 0 and at the worker that failed first", consequence: true},

	"collective-timeout": {means: "the others did not come to a collective in time", do: "look for the rank that is not waiting: it hangs, is slow, or left that code; if slow is normal here, raise the timeout of init_process_group", consequence: true, waited: true},
	"watchdog-stuck":     {means: "NCCL's watchdog stood still", do: "look for a call to CUDA that hangs, often after another rank failed", consequence: true, waited: true},
	"store-timeout":      {means: "it waited in vain for another rank at the store", do: "look for the rank that did not come: it failed, is slow to start, or left that code", consequence: true, waited: true},
	"peers-unreachable":  {means: "gloo could not connect it with the others", do: "look at the worker that failed first; if none did, set GLOO_SOCKET_IFNAME: gloo announces the address that the host's own name has", consequence: true, waited: true},
	"store-unreachable":  {means: "rank 0's store could not be reached", do: "look at rank 0; check that MASTER_ADDR and MASTER_PORT can be reached from this node", consequence: true, waited: true},
}
