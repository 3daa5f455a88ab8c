"""A stand-in for AMD's package ``amdsmi``: its documented calls and structures, answered from what a test sets. It is not AMD's code.

Names, keys, units and error codes follow the package's documentation (ROCm 6.3) and its source; ``gpus`` is what the driver would say.
"""

from enum import IntEnum
from typing import Any

AMDSMI_STATUS_NOT_SUPPORTED = 2
AMDSMI_STATUS_DRIVER_NOT_LOADED = 34
AMDSMI_STATUS_IO = 12


class AmdSmiClkType(IntEnum):
    SYS, GFX, DF, DCEF, SOC, MEM = range(6)


class AmdSmiTemperatureType(IntEnum):
    EDGE, HOTSPOT, VRAM = range(3)


class AmdSmiTemperatureMetric(IntEnum):
    CURRENT, MAX = range(2)


class AmdSmiLibraryException(Exception):
    def __init__(self, err_code: int) -> None:
        super().__init__(err_code)
        self.err_code = err_code

    def get_error_code(self) -> int:
        return self.err_code

    def __str__(self) -> str:
        return f"Error code:\n\t{self.err_code} | AMDSMI_STATUS"


class Gpu(dict):
    """The answers of one GPU by call; an int instead of an answer is the error code that the call raises."""

    def __init__(self, serial: str) -> None:
        super().__init__(
            amdsmi_get_gpu_asic_info={"market_name": "stand-in", "asic_serial": serial},
            amdsmi_get_gpu_activity={"gfx_activity": 97, "umc_activity": 41, "mm_activity": "N/A"},
            amdsmi_get_gpu_vram_usage={"vram_total": 65520, "vram_used": 3072},
            amdsmi_get_power_info={"current_socket_power": 431, "average_socket_power": 410, "power_limit": 560_000_000},
            amdsmi_get_power_cap_info={"power_cap": 560_000_000, "default_power_cap": 560_000_000},
            amdsmi_get_energy_count={"energy_accumulator": 1_000_000, "counter_resolution": 15.3, "timestamp": 1},
            amdsmi_get_temp_metric={AmdSmiTemperatureType.HOTSPOT: 61, AmdSmiTemperatureType.VRAM: 55},
            amdsmi_get_clock_info={AmdSmiClkType.GFX: {"clk": 1700, "min_clk": 5}, AmdSmiClkType.MEM: {"clk": 1300, "min_clk": 9}},
            amdsmi_get_gpu_metrics_info={"throttle_status": False, "ppt_residency_acc": 5, "socket_thm_residency_acc": 0},
            amdsmi_get_gpu_process_list=[
                {"pid": pid, "mem": 0, "memory_usage": {"vram_mem": bytes_, "gtt_mem": 0, "cpu_mem": 0}}
                for pid, bytes_ in ((10, 1 << 30), (11, 1 << 20), (99, 1 << 32))
            ],
            amdsmi_get_gpu_total_ecc_count={"correctable_count": 3, "uncorrectable_count": 1, "deferred_count": 0},
        )
        self.asked: list[str] = []


class AmdSmiStandIn:
    """The module: put it into ``sys.modules`` as ``amdsmi``."""

    AmdSmiClkType = AmdSmiClkType
    AmdSmiTemperatureType = AmdSmiTemperatureType
    AmdSmiTemperatureMetric = AmdSmiTemperatureMetric
    AmdSmiLibraryException = AmdSmiLibraryException

    def __init__(self, *gpus: Gpu, init_error: int = 0) -> None:
        self._gpus = gpus
        self._init_error = init_error

    def amdsmi_init(self) -> None:
        if self._init_error:
            raise AmdSmiLibraryException(self._init_error)

    def amdsmi_get_processor_handles(self) -> list[Gpu]:
        return list(self._gpus)

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("amdsmi_get_"):
            raise AttributeError(name)

        def call(gpu: Gpu, kind: object = None, *_: object) -> Any:
            gpu.asked.append(name)
            answer = gpu[name]
            if isinstance(answer, int):
                raise AmdSmiLibraryException(answer)
            return answer if kind is None else answer[kind]

        return call
