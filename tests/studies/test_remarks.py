"""The remarks in each ``study.toml`` on what a paper printed: every number of them, from the values in the paper's files."""

import re

import pytest

from rooflines.units import percent, seconds, si, significant
from rooflines_studies.environments import page
from rooflines_studies.networks import cnn
from rooflines_studies.study import HERE, read_study
from rooflines_studies.tables import by_name, printed


def remarks(study):
    return read_study(HERE / study).remarks


def numbers(text):
    """The numbers of a sentence in their order, without those of names ("ResNet-18") and of the paper's own places ("table 4")."""
    text = re.sub(r"(?:ResNet-|squeezenet1_|resnet|table |float|x)\d+|mobilenet_v2|squeezenet1_1", " ", text)
    return [number.replace(",", "") for number in re.findall(r"(?<![\w.])\d[\d,]*(?:\.\d+)?", text)]


def test_the_backends_paper_contradicts_itself():
    paper = {row["backend"]: row for row in printed(HERE / "backends" / "backends_mnist_cnn.csv")}
    rates = {name: row["samples_per_s"] for name, row in paper.items()}
    torch = [name for name in paper if name.startswith("torch")]
    low, high = min(rates[name] for name in torch), max(rates[name] for name in torch)
    assert high / low < 1.5, "a CPU and two GPUs have about the same rate: that of the loader"
    loader_s = min(paper[name]["epoch_s"] for name in torch)
    slowest = max(torch, key=lambda name: paper[name]["epoch_s"])
    rest_s = paper[slowest]["epoch_s"] - loader_s
    said = remarks("backends")["contradiction"]
    assert f"Numba CUDA at {rates['numba-cuda']:,.0f} samples/s and PyTorch CUDA at {rates['torch-cuda']:,.0f}" in said
    assert f"{rates['numba-cuda'] / rates['torch-cuda']:.1f} times slower" in said
    assert f"{low:,.0f} to {high:,.0f} samples/s" in said
    assert f"{significant(1e6 / high)} µs each" in said
    assert f"({seconds(loader_s)}), {slowest} itself computed for {seconds(rest_s)} ({60_000 / rest_s:,.0f} samples/s)" in said
    assert len(numbers(said)) == 9


def test_the_backends_paper_leaves_out_the_gradients_of_the_convolutions():
    left_out = [one.flops for one in cnn.work(512) if one.phase == "backward" and one.layer.startswith("conv")]
    whole = sum(one.flops for one in cnn.work(512))
    assert f"{percent(sum(left_out) / whole)} of the FLOPs" in remarks("backends")["gradients"]
    # Per image: conv1 2 * 9 * 8 * 676, conv2 2 * 72 * 16 * 121, once forward; backward conv1 one product, conv2 two.
    conv1, conv2, dense = 2 * 9 * 8 * 676, 2 * 72 * 16 * 121, 2 * (400 * 128 + 128 * 10)
    products = (conv1 + 2 * conv2) / (2 * conv1 + 3 * conv2 + 3 * dense)
    assert sum(left_out) / whole == pytest.approx(products, rel=0.1)  # element-wise work makes the difference


def test_the_from_scratch_papers_units_and_link():
    paper, said = by_name(HERE / "from_scratch" / "from_scratch_mlp.csv"), remarks("from_scratch")
    samples, pixels, hidden, classes = 59_000, 784, 10, 10
    weights = pixels * hidden + hidden * classes
    assert f"{paper['numpy']['memory_parameters'] / 1e6:.1f} MB of parameters are the {weights:,} weights" in said["memory"]
    assert f"which take {si(4 * weights, 'B')} in float32" in said["memory"]
    images = paper["numpy"]["memory_input_data"]
    rows = round(images / (pixels + 1), -3)
    assert f"{images / 1e6:.1f} MB of input are one byte for each value of {rows:,.0f} rows of {pixels + 1}" in said["memory"]
    assert f"{samples:,} images take {si(samples * pixels * 4, 'B')}" in said["memory"]
    assert len(numbers(said["memory"])) == 8
    # forward of both layers, weight gradients of both, the input gradient of the second; weights are next to nothing
    read = 784 + 10 + (784 + 10) + (10 + 10) + 10  # inputs; both operands of the weight gradients; the gradient
    written = 10 + 10 + 10
    moved, iteration_s = 4 * samples * (read + written), paper["cupy"]["time_per_iteration"]
    # 16 lanes of PCIe 3.0: 8e9 transfers a second, 128 of 130 bits payload, 8 bits a byte
    link = 16 * 8e9 * 128 / 130 / 8
    assert moved / iteration_s <= link
    assert f"only {paper['numpy']['time_per_iteration'] / iteration_s:.1f} times as fast as its CPU" in said["link"]
    assert f"must move {si(moved, 'B')} in float32; in {seconds(iteration_s)} this is {si(moved / iteration_s, 'B/s')}" in said["link"]
    assert f"no more than the bandwidth of a PCIe 3.0 x16 link ({si(link, 'B/s')})" in said["link"]
    # products, ReLU and softmax of both passes less the forward pass: what of the products can be of the backward pass
    beyond_s = {name: one["matrix_multiplication"] + one["relu"] + one["softmax"] - one["forward_pass"] for name, one in paper.items()}
    most = max(beyond_s, key=beyond_s.get)
    assert f"takes {seconds(paper['numpy']['gradient_computation'])} in the NumPy column" in said["gradients"]
    assert (
        f"by {seconds(beyond_s[most])} at most ({most}), of a backward pass of {seconds(paper[most]['backward_pass'])}"
        in said["gradients"]
    )


def environments(name):
    return printed(HERE / "environments" / f"environments_{name}.csv")


def test_the_environments_papers_intensity_has_a_wrong_unit():
    said = remarks("environments")
    nets = {row["model"]: row for row in environments("complexity")}
    proxies = page.proxies()
    assert all(proxies[model] / 1e3 == pytest.approx(row["intensity_as_printed"], rel=0.02) for model, row in nets.items())
    assert proxies["resnet18"] == pytest.approx(1.824e9 / 44.67e6)
    one = nets["resnet18"]
    assert f"intensity of {one['intensity_as_printed']:g} FLOP/byte for ResNet-18" in said["unit"]
    assert (
        f"{proxies['resnet18']:.1f} FLOP/byte ({one['flops_per_image_g_as_printed']:g} GFLOP / {one['model_size_mb']:g} MB)"
        in said["unit"]
    )
    for name, row in zip(("m3", "cpu", "t4"), environments("ceilings"), strict=True):
        ridge = row["peak_fp32_gflops"] / row["memory_bandwidth_gbs"]
        above = [model for model, proxy in proxies.items() if proxy >= ridge]
        assert said[name].startswith(f"{row['device']} (paper): the ridge is at {significant(ridge)} FLOP/byte, so")
        assert f"{len(above)} of {len(proxies)} networks are bound by arithmetic ({', '.join(above)})" in said[name]


def test_the_environments_papers_epochs_and_utilization():
    said, rates = remarks("environments"), environments("throughput")
    images = sorted({round(row["train_images_per_s"] * row["train_epoch_s"], -2) for row in rates}, reverse=True)
    assert f"is {' or '.join(f'{count:,.0f}' for count in images)} images" in said["epochs"]
    assert images == [6400, 3200]
    gflop = {row["model"]: row["flops_per_image_g_as_printed"] for row in environments("complexity")}
    shares = [1e3 * row["train_tflops"] / row["train_images_per_s"] / gflop[row["model"]] for row in rates]
    (table,) = [table for table in read_study(HERE / "environments").tables if table.name == "throughput"]
    assert f"times {min(shares):.1f} to {max(shares):.1f} × the multiply-adds" in table.note
    # a training step is six FLOPs for each multiply-add forward: forward, and twice that backward; a multiply-add is two
    watched = [row for row in rates if row["gpu_util_percent"] is not None]
    peak = next(row["peak_fp32_gflops"] for row in environments("ceilings") if row["device"] == watched[0]["device"])
    busy, tested = [row["gpu_util_percent"] for row in watched], [row["val_images_per_s"] for row in watched]
    used = {row["model"]: 6 * row["train_images_per_s"] * gflop[row["model"]] / peak for row in watched}
    most = max(used, key=used.get)
    assert f"of {min(busy):g} to {max(busy):g} % on a T4 that trains {most} at {percent(used[most])} of its peak" in said["idle"]
    assert f"{min(tested):.0f} to {max(tested):.0f} images/s" in said["idle"]
    assert f"{max(gflop.values()) / min(gflop.values()):.0f} times apart in work" in said["idle"]


def test_the_training_profile_papers_gpus_clash():
    paper = {row["quantity"]: row for row in printed(HERE / "training_profile" / "training_profile_densenet121.csv")}
    said = remarks("training_profile")["clash"]
    used, held = ([row for name, row in paper.items() if name.startswith(word)] for word in ("use of GPU", "memory of GPU"))
    first, second = (row["gpu_batch_128"] for row in used)
    assert f'{first:g} and {second:g} % "of its total memory" in one section' in said
    assert (
        f"{held[0]['gpu_batch_128']:g} and {held[1]['gpu_batch_128']:g} of 48 GB in another ({first:g} is also GPU 0's temperature)"
        in said
    )
    assert f"At batch 64 the use is the other way round ({used[0]['gpu_batch_64']:g} and {used[1]['gpu_batch_64']:g} %)" in said
