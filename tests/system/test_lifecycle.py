"""Starting, refusing to start, stopping: clear sentences, and nothing left behind."""

import os
import pathlib
import re
import subprocess

import pytest

import lab

GOOD = """
[dpdk]
memory = "{memory}"
memory_mb = 128
file_prefix = "{prefix}"

[api]
socket = "{socket}"

[[worker]]
cpu = {cpu}

[[port]]
name = "p0"
device = "net_null0"

[[port]]
name = "p1"
device = "net_ring1"

[[interface]]
name = "a"
port = "p0"
addresses = ["198.18.1.1/24"]
"""


def left_behind(prefix):
    hugepages = list(pathlib.Path("/dev/hugepages").glob(f"{prefix}*")) if os.path.isdir("/dev/hugepages") else []
    runtime = [p for root in ("/var/run/dpdk", "/run/user/0/dpdk", "/tmp/dpdk") for p in pathlib.Path(root).glob(f"{prefix}*")]
    return hugepages + runtime


@pytest.mark.parametrize("memory", ["no-huge", "hugepages"])
def test_sigterm_leaves_nothing(tmp_path, memory):
    free = int(re.search(r"HugePages_Free: +(\d+)", pathlib.Path("/proc/meminfo").read_text())[1])
    if memory == "hugepages" and free < 128:
        pytest.skip(f"{free} hugepages of 2 MiB are free; this test needs 128")
    text = GOOD.replace("{memory}", memory)
    with lab.linerate(tmp_path, text, "lrstop") as r:
        assert r.socket.exists()
    assert not r.socket.exists()
    assert left_behind("lrstop") == []
    now = int(re.search(r"HugePages_Free: +(\d+)", pathlib.Path("/proc/meminfo").read_text())[1])
    assert now == free, "hugepages were not given back"


@pytest.mark.parametrize(("change", "to", "said"), [
    ('device = "net_null0"', 'device = "net_nosuch0"', r'toml:\d+:.*no driver "net_nosuch"'),
    ('device = "net_null0"', 'device = "net_af_packet0,iface=nosuch0"', r"no Linux interface 'nosuch0'"),
    ("memory_mb = 128", "memory_mb = 4", r"memory"),
    ("cpu = {cpu}", "cpu = 99", r"toml:\d+:.*99"),
    ("cpu = {cpu}", "cpu = {cpu}\n[[worker]]\ncpu = {cpu}", r"toml:\d+:.*cpu"),
    ('device = "net_ring1"', 'device = "net_null0"', r"toml:\d+:.*device"),
    ('name = "p1"', 'name = "p0"', r"toml:\d+:.*name"),
    ("file_prefix", "file_prefux", r"toml:\d+:.*file_prefux.*file_prefix"),
    ("198.18.1.1/24", "198.18.1.1/33", r"toml:\d+:.*addresses"),
])
def test_a_bad_configuration_is_one_sentence_and_touches_nothing(tmp_path, change, to, said):
    text = GOOD.replace("{memory}", "no-huge").replace(change, to)
    path = tmp_path / "bad.toml"
    path.write_text(text.format(prefix="lrbad", socket=tmp_path / "api.sock", cpu=lab.CPU))
    done = lab.sh(f"{lab.LINERATE} run {path}", check=False, timeout=30)
    assert done.returncode not in (0, 101, 134, 139), done
    assert re.search(said, done.stderr), done.stderr
    assert "panicked" not in done.stderr
    told = [line for line in done.stderr.splitlines() if line.startswith("linerate: ")]
    assert len(told) <= 1 and all(line.count("cannot be opened") <= 1 for line in told), told
    assert not (tmp_path / "api.sock").exists() and left_behind("lrbad") == []


def test_a_second_instance_with_the_same_socket_is_refused(tmp_path):
    text = GOOD.replace("{memory}", "no-huge")
    with lab.linerate(tmp_path, text, "lrone") as r:
        other = tmp_path / "other.toml"
        other.write_text(text.format(prefix="lrtwo", socket=r.socket, cpu=lab.CPU))
        done = lab.sh(f"{lab.LINERATE} run {other}", check=False, timeout=30)
        assert done.returncode != 0 and str(r.socket) in done.stderr, done
        assert r.cli("show ports").returncode == 0, "the first instance goes on"


@pytest.mark.parametrize(("ci", "code", "said"), [("true", 1, "CANNOT RUN"), ("", 0, "SKIPPED"), ("false", 0, "SKIPPED")])
def test_tests_that_cannot_run_fail_in_ci_and_are_skipped_loudly_elsewhere(ci, code, said):
    script = pathlib.Path(__file__).with_name("run.sh").read_text()
    nobody = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "env", f"CI={ci}", "bash", "-s"]
    done = subprocess.run(nobody, input=script, text=True, capture_output=True, timeout=30, cwd="/", check=False)
    assert (done.returncode, said in done.stderr) == (code, True), done


def test_frames_of_other_interfaces_are_not_received_at_the_start(tmp_path):
    """AF_PACKET's sockets hear the whole namespace until they are bound: nothing of that is a port's."""
    loads = [subprocess.Popen(["ping", "-q", "-f", "-w", "20", "127.0.0.1"], stdout=subprocess.DEVNULL) for _ in range(2)]
    try:
        with lab.hosts("lrst-a", "lrst-b") as hosts:
            for host in hosts:
                host.run("sysctl -qw net.ipv6.conf.eth0.disable_ipv6=1")
            text = GOOD.replace("{memory}", "no-huge")
            for device, host in zip(("net_null0", "net_ring1"), hosts):
                text = text.replace(device, f"net_af_packet{device[-1]},iface={host.outside}")
            for i in range(4):
                (tmp_path / str(i)).mkdir()
                with lab.linerate(tmp_path / str(i), text, "lrstart") as r:
                    ports, drops = r.at_rest()
                    assert not drops and not any(p["rx"]["packets"] for p in ports.values()), (ports, drops)
    finally:
        for load in loads:
            load.kill()
            load.wait()
