"""The doctor: on this machine as it is, and what it says of machines that we can describe but do not have."""

import platform
import sys

import pynvml
import pytest
import torch

from rooflines.device_specs import detect
from rooflines.device_specs.history import History, HistorySession, add_session
from rooflines.profiler.machine import doctor
from rooflines.profiler.machine.doctor import Check, Driver, examine, why_no_cuda
from rooflines.reports.page.doctor import page
from tests.printing import in_terminal

OLD_DRIVER = Driver(version="535.183.01", cuda=(12, 2), gpus={0: "NVIDIA A100"})
NEW_DRIVER = Driver(version="580.65.06", cuda=(13, 0), gpus={0: "NVIDIA H200"})
NO_DRIVER = Driver(problem="NVML is not available (NVML Shared Library Not Found).")

linux_only = pytest.mark.skipif(platform.system() != "Linux", reason="reads what the Linux kernel shows")


def printed(checks):
    return in_terminal(page(checks))


@pytest.fixture(autouse=True)
def fresh_driver():
    """The answer about the driver is kept for one examination; no test may see another's."""
    doctor._driver.cache_clear()
    yield
    doctor._driver.cache_clear()


def test_the_first_line_says_what_is_ready():
    torch_, tracing = Check("ok", "2.14", name="PyTorch"), Check("ok", "Kineto records CPU", name="Tracing")
    found = page((torch_, tracing, Check("missing", "no NVIDIA driver", name="CUDA")))
    assert found.verdict == (
        "Reading traces: ready. Recording: ready. Recording on a GPU: not ready (CUDA: no NVIDIA driver). 2 ok, 1 missing."
    )


@pytest.fixture(scope="module")
def checks():
    return {check.name: check for check in examine()}


def test_every_answer_has_a_word_and_a_detail_in_a_table_of_80_columns(checks):
    assert {"Python", "PyTorch", "CPU", "Numba", "GPU driver", "CUDA", "Tracing", "Ceilings", "Cache", "Disk", "Memory"} <= set(checks)
    lines = printed(checks.values()).splitlines()
    assert max(map(len, lines)) <= 80
    for name, check in checks.items():
        assert check.status in ("ok", "limited", "missing")
        assert check.detail
        assert "check failed" not in check.detail
        assert check.status != "ok" or not check.fix
        assert any(line.startswith(f"  {name} ") for line in lines)
    assert checks["Python"] == Check(name="Python", status="ok", detail=platform.python_version())
    assert checks["PyTorch"] == Check(name="PyTorch", status="ok", detail=torch.__version__)


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a CUDA device")
def test_a_machine_without_a_gpu_is_told_so_and_not_asked_for_gpu_packages(checks):
    assert checks["CUDA"].status == "missing"
    assert not {"CuPy", "numba-cuda"} & set(checks) or checks["GPU driver"].status == "ok"


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="this machine has no CUDA device")
def test_a_machine_with_a_gpu_names_it(checks):
    assert torch.cuda.get_device_name(0) in checks["CUDA"].detail
    assert checks["CUDA"].status == checks["GPU driver"].status == "ok"
    assert "CUDA" in checks["Tracing"].detail


@pytest.mark.parametrize(("error", "words"), [
    (OSError("libcudart.so.12: cannot open\nsecond line"), "check failed: OSError: libcudart.so.12: cannot open"),
    (RuntimeError(), "check failed: RuntimeError:"),
])  # fmt: skip
def test_a_broken_installation_is_an_answer(monkeypatch, error, words):
    def broken():
        raise error

    monkeypatch.setattr(doctor, "_QUESTIONS", (("CUDA", broken),))
    assert examine() == (Check(name="CUDA", status="limited", detail=words),)


def test_packages_that_are_missing(monkeypatch):
    # A missing package is named with its command.
    monkeypatch.setitem(sys.modules, "torch", None)
    answers = {check.name: check for check in examine()}
    assert answers["PyTorch"].status == "missing"
    assert answers["PyTorch"].fix == "pip install torch"
    assert answers["Disk"].status in ("ok", "limited")
    # A package for those who want it.
    absent = doctor._optional("no_such_module_of_rooflines", "pip install x", "nothing")
    assert absent == Check(status="missing", detail="needed for nothing", fix="pip install x")
    assert doctor._optional("pytest", "", "tests") == Check(status="ok", detail=pytest.__version__)


OLDER = "driver 535.183.01 supports CUDA up to 12.2, torch is built for 13.0"
HIDDEN = "CUDA_VISIBLE_DEVICES='' hides all devices"


@pytest.mark.parametrize(("driver", "built", "problem", "visible", "detail", "fix"), [
    (NO_DRIVER, "13.0", "anything", None, "no NVIDIA driver", ""),
    (NO_DRIVER, None, "", None, "no NVIDIA driver, and torch is built without CUDA", ""),
    (OLD_DRIVER, None, "", None, "torch is built without CUDA", "/whl/cu126"),
    (NEW_DRIVER, None, "", None, "torch is built without CUDA", "/whl/cu130"),
    (OLD_DRIVER, "13.0", "", None, OLDER, "/whl/cu126"),
    (OLD_DRIVER, "12.8", "CUDA unknown error", None, "CUDA unknown error", ""),  # a newer minor version is no reason
    (NEW_DRIVER, "13.0", "", "", HIDDEN, "unset CUDA_VISIBLE_DEVICES"),
])  # fmt: skip
def test_the_first_reason_why_cuda_is_not_there(monkeypatch, driver, built, problem, visible, detail, fix):
    if visible is None:
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    else:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    check = why_no_cuda(driver, built, problem)
    assert check.detail.startswith(detail)
    assert check.fix.endswith(fix)
    assert bool(check.fix) == bool(fix)


@pytest.mark.parametrize(("driver", "built", "fix"), [
    (OLD_DRIVER, "12.6", "pip install 'rooflines[cuda12]'"),
    (NEW_DRIVER, "12.6", "pip install 'rooflines[cuda12]'"),
    (NEW_DRIVER, "13.0", "pip install 'rooflines[cuda13]'"),
    (OLD_DRIVER, None, "pip install 'rooflines[cuda12]'"),
    (OLD_DRIVER, "13.0", ""),  # its CUDA 12 would not go together with this torch, and this torch does not run
])  # fmt: skip
def test_the_extra_is_that_of_torch_and_never_of_another_cuda(driver, built, fix):
    check = doctor._cuda_package("no_such_module_of_rooflines", driver, built)
    assert (check.status, check.fix) == ("missing", fix)
    assert ("after a torch that this driver runs" in check.detail) == (not fix)
    assert doctor._cuda_package("no_such_module_of_rooflines", NO_DRIVER, built) is None


@pytest.mark.parametrize(("version", "status"), [("0.13.0", "limited"), ("0.29.0", "limited"), ("0.30.4", "ok"), ("1.0.0", "ok")])
def test_a_numba_cuda_without_its_compiler_is_limited(monkeypatch, version, status):
    monkeypatch.setattr(doctor, "_driver", lambda: NEW_DRIVER)
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    monkeypatch.setattr(doctor, "package_version", {"numba-cuda": version}.get)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: name)
    check = doctor.numba_cuda()
    assert (check.status, check.fix) == (status, "" if status == "ok" else "pip install 'rooflines[cuda13]'")
    assert check.detail.startswith(version)
    monkeypatch.undo()


def test_boards_without_a_driver(tmp_path, monkeypatch):
    # Boards on the bus are counted without a driver.
    for name, vendor, kind in (("a", "0x10de", "0x030200"), ("b", "0x10de", "0x040300"), ("c", "0x1002", "0x030000")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "vendor").write_text(vendor + "\n")
        (tmp_path / name / "class").write_text(kind + "\n")
    (tmp_path / "d").mkdir()
    assert doctor.nvidia_boards(tmp_path) == 1
    assert doctor.nvidia_boards(tmp_path / "absent") == 0
    # A board without a driver is limited and no board is missing.
    monkeypatch.setattr(doctor, "_driver", lambda: NO_DRIVER)
    monkeypatch.setattr(doctor, "nvidia_boards", lambda: 2)
    assert doctor.gpu_driver().status == "limited"
    assert "2 NVIDIA GPUs on the bus" in doctor.gpu_driver().detail
    monkeypatch.setattr(doctor, "nvidia_boards", lambda: 0)
    assert doctor.gpu_driver() == Check(status="missing", detail=NO_DRIVER.problem)
    monkeypatch.undo()


TWO_GPUS = "driver 575.51.03\ngpu\nname NVIDIA H100\nmemory_used constant 1\ngpu\nname NVIDIA L4\nmemory_used constant 1\n"
SEE = ": see nvidia-smi and the kernel log"


@pytest.mark.parametrize(("script", "status", "detail"), [
    (TWO_GPUS, "ok", "575.51.03, CUDA up to 12.4; NVIDIA H100, NVIDIA L4"),
    (
        TWO_GPUS.replace("name NVIDIA H100", "name NVIDIA H100\nlost 0"),
        "limited",
        f"575.51.03, CUDA up to 12.4; NVIDIA L4; GPU 0 does not answer (GPU is lost){SEE}",
    ),
    (
        f"{TWO_GPUS}error nvmlDeviceGetHandleByIndex_v2 NO_PERMISSION\n",
        "limited",
        f"575.51.03, CUDA up to 12.4; NVIDIA H100; GPU 1 does not answer (Insufficient Permissions){SEE}",
    ),
    (f"{TWO_GPUS}slice MIG-1 3 20e9 5e9\n", "ok", "575.51.03, CUDA up to 12.4; NVIDIA H100, NVIDIA L4"),
    ("driver 575.51.03\n", "ok", "575.51.03, CUDA up to 12.4; no GPU"),
    ("error nvmlInit DRIVER_NOT_LOADED\n", "missing", "NVML is not available (Driver Not Loaded)."),
])  # fmt: skip
def test_gpus_are_named_as_the_driver_does_and_one_that_fails_hides_no_other(stand_in_here, monkeypatch, script, status, detail):
    monkeypatch.setattr(doctor, "nvidia_boards", lambda: 0)
    stand_in_here(script)
    assert doctor.gpu_driver() == Check(status=status, detail=detail)
    if status == "limited":  # a GPU that works is no reason to say that there is no driver
        assert "no NVIDIA driver" not in doctor.cuda().detail


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a CUDA device")
def test_the_whole_examination_goes_by_the_driver_that_answers(stand_in_here, monkeypatch):
    """One of two GPUs is lost: there is a driver, so packages for CUDA are asked for, and torch has another reason."""
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    stand_in_here(TWO_GPUS.replace("name NVIDIA H100", "name NVIDIA H100\nlost 0"))
    answers = {check.name: check for check in examine()}
    assert [check for check in answers.values() if check.detail.startswith("check failed")] == []
    assert answers["GPU driver"].status == "limited"
    assert {"CuPy", "numba-cuda"} <= set(answers)
    assert answers["CUDA"].detail.startswith("driver 575.51.03 supports CUDA up to 12.4, torch is built for 13.0")
    assert "GPU 0 does not answer (GPU is lost)" in " ".join(printed(answers.values()).split())


def test_a_driver_from_before_the_question_for_cuda_has_no_version_of_it(stand_in_here, monkeypatch):
    def unknown():
        raise pynvml.NVMLError(pynvml.NVML_ERROR_FUNCTION_NOT_FOUND)

    stand_in_here(TWO_GPUS)
    monkeypatch.setattr(pynvml, "nvmlSystemGetCudaDriverVersion_v2", unknown)
    assert doctor.gpu_driver() == Check(status="ok", detail="575.51.03; NVIDIA H100, NVIDIA L4")


@linux_only
@pytest.mark.parametrize(("line", "user", "status"), [("1", 1000, "limited"), ("1", 0, "ok"), ("0", 1000, "ok")])
def test_hardware_counters_follow_the_driver_s_parameter(tmp_path, monkeypatch, line, user, status):
    (tmp_path / "params").write_text(f"ResmanDebugLevel: 4294967295\nRmProfilingAdminOnly: {line}\n")
    monkeypatch.setattr("os.geteuid", lambda: user)
    check = doctor.hardware_counters(tmp_path / "params")
    assert check.status == status
    assert bool(check.fix) == (status == "limited")
    assert doctor.hardware_counters(tmp_path / "absent") is None


@pytest.mark.parametrize(("text", "cores"), [("150000 100000\n", 1.5), ("max 100000\n", None), ("", None)])
def test_cpu_quota_of_a_container(tmp_path, text, cores):
    (tmp_path / "cpu.max").write_text(text)
    assert doctor.cpu_quota(tmp_path / "cpu.max") == cores
    assert doctor.cpu_quota(tmp_path / "absent") is None


def test_a_container_or_a_variable_that_takes_threads_away_is_named(monkeypatch):
    monkeypatch.setattr(doctor, "cpu_quota", lambda: 0.5)
    assert doctor.cpu().status == "limited"
    assert doctor.cpu().detail.endswith("limited to 0.5 cores by the container")
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setattr("torch.get_num_threads", lambda: 1)
    monkeypatch.setattr(doctor, "cpu_quota", lambda: None)
    monkeypatch.setattr(detect, "physical_cores", lambda: 8)
    monkeypatch.setattr(detect, "usable_cpus", lambda: tuple(range(8)))
    assert (doctor.cpu().status, doctor.cpu().fix) == ("limited", "unset OMP_NUM_THREADS")


@linux_only
def test_rapl_counters_that_only_root_may_read(tmp_path, monkeypatch):
    assert doctor.cpu_power(tmp_path).status == "missing"
    (tmp_path / "intel-rapl:0").mkdir()
    (tmp_path / "intel-rapl:0" / "name").write_text("package-0\n")
    (tmp_path / "intel-rapl:0" / "energy_uj").write_text("1\n")
    assert doctor.cpu_power(tmp_path) == Check(status="ok", detail="RAPL counters of 1 CPU package")
    # Root may read everything, so rights cannot be taken away for real where the tests run as root.
    monkeypatch.setattr("os.access", lambda path, mode: False)
    check = doctor.cpu_power(tmp_path)
    assert (check.status, check.fix) == ("limited", "sudo chmod a+r /sys/class/powercap/intel-rapl:*/energy_uj")


@linux_only
def test_a_clock_without_cpufreq_is_the_rated_one(tmp_path, monkeypatch):
    monkeypatch.setattr(doctor, "cpu_frequency_hz", lambda: 2.6e9)
    assert doctor.cpu_clock(tmp_path) == Check(status="ok", detail="2.60 GHz now")
    assert doctor.cpu_clock(tmp_path / "absent").status == "limited"
    monkeypatch.setattr(doctor, "cpu_frequency_hz", lambda: None)
    assert doctor.cpu_clock(tmp_path).status == "missing"


def test_the_cache_directory_may_be_chosen_and_is_not_created(tmp_path, monkeypatch):
    monkeypatch.setenv("ROOFLINES_CACHE_DIR", str(tmp_path / "deep" / "cache"))
    assert doctor.cache() == Check(status="ok", detail=str(tmp_path / "deep" / "cache"))
    assert not (tmp_path / "deep").exists()
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("ROOFLINES_CACHE_DIR", str(tmp_path / "file"))
    assert doctor.cache().status == "limited"


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine's ceilings are more than its CPU's")
def test_ceilings_are_found_by_the_device_s_name(tmp_path, monkeypatch):
    monkeypatch.setenv("ROOFLINES_CACHE_DIR", str(tmp_path))
    assert (doctor.ceilings().status, doctor.ceilings().fix) == ("missing", "rooflines ceilings")
    (tmp_path / "ceilings").mkdir()
    (tmp_path / "ceilings" / "cpu-0.json").write_text("{broken")
    measured = HistorySession(measured_at="2026-11-20T10:00:00", series=())
    add_session(History(device="another CPU", kind="cpu", fingerprint="1", method=1), measured, print)
    assert doctor.ceilings().status == "missing"
    add_session(History(device=detect.cpu_name(), kind="cpu", fingerprint="2", method=1), measured, print)
    assert doctor.ceilings() == Check(status="ok", detail=f"measured: {detect.cpu_name()}")


def test_fixes_are_named_once():
    # A fix is one line whole and named once.
    fix = "pip install torch --force-reinstall --index-url https://download.pytorch.org/whl/cu126 and more than eighty columns"
    checks = [
        Check(name="CuPy", status="missing", detail="[bold]no markup[/bold]", fix=fix),
        Check(name="numba-cuda", status="missing", detail="needed " * 20, fix=fix),
        Check(name="Disk", status="ok", detail="1.00 GiB free"),
    ]
    lines = printed(checks).splitlines()
    assert lines.count(f"  {fix}") == 1
    assert lines[lines.index(f"  {fix}") - 1] == "  CuPy, numba-cuda:"
    assert any("[bold]no markup[/bold]" in line for line in lines)
    # Without anything to fix there is only the table.
    text = printed([Check(name="Disk", status="ok", detail="1.00 GiB free")])
    assert text.splitlines()[-1].split() == ["Disk", "ok", "1.00", "GiB", "free"]
    assert "Fixes" not in text
