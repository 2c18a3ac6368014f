# Trains until it is told to stop, and saves then.
import os, signal

signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
print("trains", flush=True)
signal.sigwait({signal.SIGTERM})
os.write(1, b"saved\n")
