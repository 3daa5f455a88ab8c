"""The stand-in NVML driver itself: the real pynvml finds it, and it does what its script says."""

import time

import pynvml
import pytest

from tests.profiler.samplers.nvml_driver.signals import Burst, Constant, Ramp, Square, integral, lines

SIGNALS = {
    "constant": [Constant(70.0)],
    "square": [Square(100.0, 300.0, period_s=0.5, duty=0.3, phase_s=0.1)],
    "ramp": [Ramp(50.0, 450.0, start_s=3.0, seconds=2.0)],
    "step": [Ramp(50.0, 450.0, start_s=3.0, seconds=0.0)],
    "burst": [Constant(60.0), Burst(400.0, start_s=4.0, seconds=0.25)],
    "bursts": [Constant(60.0), Burst(400.0, start_s=1.0, seconds=0.25, every_s=0.7)],
}


@pytest.mark.parametrize(
    "script", ["gpu\npower constant", "gpu\npower square 1 2 0", "gpu\nupdate joy 1", "gpu\nerror nvmlInit MOOD", "power constant 1"]
)
def test_script_that_is_not_understood_is_refused(stand_in_here, capfd, script):
    stand_in_here(script)
    with pytest.raises(pynvml.NVMLError_InvalidArgument):
        pynvml.nvmlInit()
    assert "is not understood" in capfd.readouterr().err


@pytest.mark.parametrize("name", SIGNALS)
def test_integral_is_the_sum_of_what_the_signal_was(name):
    step_s = 1e-3
    middles = [(index + 0.5) * step_s for index in range(int(8 / step_s))]
    summed = sum(term.at(time_s) for time_s in middles for term in SIGNALS[name]) * step_s
    assert integral(SIGNALS[name], 0.0, 8.0) == pytest.approx(summed, rel=2e-3)


@pytest.mark.parametrize("name", SIGNALS)
@pytest.mark.parametrize("elapsed_s", [0.05, 3.4, 4.1, 1000.0])
def test_library_agrees_with_the_signals(stand_in_here, name, elapsed_s):
    # Everything is updated once in 10,000 s, and the last time was so long after zero: all readings are of that moment.
    power = SIGNALS[name]
    held = "".join(f"update {reading} 1e4 {elapsed_s}\n" for reading in ("energy", "power_average", "power_instant"))
    stand_in_here(f"epoch {time.time() - elapsed_s - 1!r}\ngpu\n{lines('power', *power)}{held}window power_average 0.4\n")
    pynvml.nvmlInit()
    try:
        gpu = pynvml.nvmlDeviceGetHandleByIndex(0)
        fields = pynvml.nvmlDeviceGetFieldValues(gpu, [pynvml.NVML_FI_DEV_POWER_AVERAGE, pynvml.NVML_FI_DEV_POWER_INSTANT])
        energy_mj = pynvml.nvmlDeviceGetTotalEnergyConsumption(gpu)
    finally:
        pynvml.nvmlShutdown()
    assert [field.nvmlReturn for field in fields] == [0, 0]
    assert energy_mj / 1e3 == pytest.approx(integral(power, 0.0, elapsed_s), abs=2e-3)
    assert fields[0].value.uiVal / 1e3 == pytest.approx(integral(power, elapsed_s - 0.4, elapsed_s) / 0.4, abs=2e-3)
    assert fields[1].value.uiVal / 1e3 == pytest.approx(sum(term.at(elapsed_s) for term in power), abs=2e-3)
