"""An emulated machine (QEMU) with a kernel and a busybox of Debian's: what it is given, what it does, and what comes out of it.

A test makes a `Machine`, whose `tree` is the first file system. It puts its programs below `tree / "t"`, and the libraries where their
loader looks. `Machine.run` boots once and runs commands of a shell in order, in the folder /out. What each wrote is there as
NAME.stdout and NAME.stderr, its exit code as NAME.code; all of /out is on the host afterwards, in `Machine.out`, for `Results` to look
at. How long each command took is printed as it ends.

The test's folder keeps what was downloaded, unpacked and made. Packages come through apt, with lists of their own: those of the system
are not touched.
"""

import json
import lzma
import re
import shutil
import stat
import subprocess
import sys
import tarfile
import threading
import time
from pathlib import Path

from checks import expect

ROOT = Path(__file__).resolve().parent.parent
# So that a disk is there, to write the files to.
MODULES = ["virtio", "virtio_ring", "virtio_pci_modern_dev", "virtio_pci_legacy_dev", "virtio_pci", "virtio_blk"]
TOOLS = ["sh", "sleep", "tar", "true", "cat", "grep", "rm", "mount", "insmod", "poweroff", "sync"]
OUT_BYTES = 64 << 20
# What the machine's console says when a command begins.
BEGIN = "memlens-test begins "


def need(tool, package):
    if not shutil.which(tool):
        sys.exit(f"{sys.argv[0]}: there is no {tool}: install {package}")


class Machine:
    """ARCHITECTURE is Debian's name of it, CONSOLE where its kernel writes."""

    def __init__(self, folder, architecture, console):
        self.console = console
        self.folder = folder.resolve()
        self.folder.mkdir(parents=True, exist_ok=True)
        self.unpacked = self.folder / "unpacked"
        if not self.unpacked.exists():
            for package in debian_packages(self.folder, architecture):
                subprocess.run(["dpkg", "-x", package, self.unpacked], check=True)
        self.out = self.folder / "out"
        shutil.rmtree(self.out, ignore_errors=True)
        self.tree = self._tree()

    def _tree(self):
        tree = self.folder / "tree"
        shutil.rmtree(tree, ignore_errors=True)
        for below in ["bin", "lib", "lib64", "proc", "sys", "dev", "tmp", "modules", "t", "out", "root"]:
            (tree / below).mkdir(parents=True)
        shutil.copy(next(self.unpacked.rglob("bin/busybox")), tree / "bin/busybox")
        for tool in TOOLS:
            (tree / "bin" / tool).symlink_to("busybox")
        for module in MODULES:
            for found in self.unpacked.rglob(f"{module}.ko*"):
                content = found.read_bytes()
                if found.suffix == ".xz":
                    content = lzma.decompress(content)
                (tree / f"modules/{module}.ko").write_bytes(content)
        return tree

    def run(self, emulator, commands, limit_s, append=""):
        """Boots the machine that EMULATOR, a command line, describes, and runs COMMANDS: pairs of a name and a command of the shell.

        APPEND is for the kernel's command line. What another boot has left in `out` stays there."""
        steps = [
            f"echo '{BEGIN}{name}' > /dev/console; ( {command} ) > {name}.stdout 2> {name}.stderr; echo $? > {name}.code"
            for name, command in commands
        ]
        script = [
            "#!/bin/busybox sh",
            "export PATH=/bin:/t HOME=/root TERM=dumb MEMLENS_CALIBRATION=none",
            "mount -t proc proc /proc; mount -t sysfs sys /sys; mount -t devtmpfs dev /dev; mount -t tmpfs tmp /tmp",
            # Which needs which differs between kernels.
            "for round in 1 2 3; do for module in /modules/*; do insmod $module 2> /dev/null; done; done",
            "cd /out",
            *steps,
            f"echo '{BEGIN}its end' > /dev/console; tar cf /dev/vda .; sync; poweroff -f",
            "",
        ]
        (self.tree / "init").write_text("\n".join(script))
        (self.tree / "init").chmod(0o755)
        (self.folder / "first.cpio").write_bytes(cpio(self.tree))
        disk = self.folder / "out.disk"
        with open(disk, "wb") as file:
            file.truncate(OUT_BYTES)
        console = self._boot(emulator, disk, f"console={self.console} quiet panic=-1 rdinit=/init {append}", limit_s)
        try:
            with tarfile.open(disk, "r:") as archive:
                archive.extractall(self.out, filter="data")
        except tarfile.TarError:
            pass
        if not (self.out / f"{commands[-1][0]}.code").exists():
            sys.exit(f"{sys.argv[0]}: the machine did not come to its end:\n{console[-3000:]}")

    def _boot(self, emulator, disk, append, limit_s):
        """Returns what the console said."""
        machine = subprocess.Popen(
            [
                *emulator, "-nographic", "-no-reboot", "-kernel", next(self.unpacked.glob("boot/vmlinuz-*")),
                "-initrd", self.folder / "first.cpio", "-append", append,
                "-drive", f"file={disk},if=none,id=out,format=raw", "-device", "virtio-blk-pci,drive=out",
            ],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace",
        )  # fmt: skip
        end = threading.Timer(limit_s, machine.kill)
        end.start()
        said, running, begin = [], "boot", time.monotonic()
        for line in machine.stdout:
            said.append(line)
            if BEGIN in line:
                now = time.monotonic()
                print(f"{now - begin:6.1f} s  {running}", flush=True)
                running, begin = line.split(BEGIN)[1].strip(), now
        machine.wait()
        if not end.is_alive():
            said.append(f"\n{limit_s} s were not enough: it was at {running}, for {time.monotonic() - begin:.0f} s\n")
        end.cancel()
        return "".join(said)


def debian_packages(folder, architecture):
    """The newest kernel for clouds and a static busybox."""
    if len(found := sorted(folder.glob("*.deb"))) >= 2:
        return found
    for below in ["lists/partial", "cache/archives/partial"]:
        (folder / below).mkdir(parents=True, exist_ok=True)
    (folder / "status").touch()
    options = {
        "APT::Architecture": architecture,
        "APT::Architectures": architecture,
        "Dir::State::Lists": folder / "lists",
        "Dir::State::status": folder / "status",
        "Dir::Cache": folder / "cache",
        "APT::Sandbox::User": "root",
    }
    options = [word for name, value in options.items() for word in ("-o", f"{name}={value}")]
    subprocess.run(["apt-get", "-qq", *options, "update"], check=True)
    answer = subprocess.run(
        ["apt-cache", *options, "depends", f"linux-image-cloud-{architecture}"], check=True, capture_output=True, text=True
    )
    kernel = re.search(r"Depends: (linux-image-\S+)", answer.stdout)
    if not kernel:
        sys.exit(f"apt knows no linux-image-cloud-{architecture}; is this a Debian?")
    subprocess.run(["apt-get", "-qq", *options, "download", kernel[1], "busybox-static"], cwd=folder, check=True)
    return sorted(folder.glob("*.deb"))


def cpio(tree):
    """A folder as the kernel takes it for its first file system (Documentation/driver-api/early-userspace/buffer-format.rst)."""
    archive = bytearray()

    def add(name, mode, content):
        fields = [len(archive), mode, 0, 0, 1, 0, len(content), 0, 0, 0, 0, len(name) + 1, 0]
        archive.extend(b"070701" + b"".join(b"%08X" % field for field in fields))
        archive.extend(name.encode() + b"\0")
        archive.extend(b"\0" * (-len(archive) % 4))
        archive.extend(content + b"\0" * (-len(content) % 4))

    for path in sorted(tree.rglob("*")):
        name, status = str(path.relative_to(tree)), path.lstat()
        if path.is_symlink():
            add(name, stat.S_IFLNK | 0o777, str(path.readlink()).encode())
        elif path.is_dir():
            add(name, stat.S_IFDIR | 0o755, b"")
        else:
            add(name, stat.S_IFREG | stat.S_IMODE(status.st_mode), path.read_bytes())
    add("TRAILER!!!", 0, b"")
    return bytes(archive)


class Results:
    """What commands left in the folder OUT; profiles are read by READER, a memlens of this machine."""

    def __init__(self, out, reader):
        self.out, self.reader = out, reader

    def ended(self, name, code=0, stdout="", stderr=""):
        """Checks how a command ended, and what stands in what it wrote; returns its standard output."""
        texts = {end: (self.out / f"{name}.{end}").read_text(errors="replace") for end in ["code", "stdout", "stderr"]}
        expect(texts["code"].strip() == str(code), f"exit code {texts['code'].strip()}, not {code}: {texts['stderr'][-500:]}")
        for end, part in [("stdout", stdout), ("stderr", stderr)]:
            expect(part in texts[end], f"{part!r} is not in {end}: {texts[end][-1500:]}")
        return texts["stdout"]

    def read(self, name, command, *words):
        """What `memlens COMMAND` says of a profile, from JSON."""
        profile = self.out / f"{name}.memlens"
        expect(profile.exists(), f"there is no {profile.name}")
        words = [self.reader, command, profile, *words, "--format", "json"]
        return json.loads(subprocess.run(words, check=True, capture_output=True, text=True).stdout)
