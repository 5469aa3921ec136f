"""Reference runtime of autohaap: executes plan files on torch.distributed (gloo on CPUs, NCCL on GPUs)."""

__version__ = "0.1.0"
