#!/bin/sh
# Installs the system packages that a task needs and that are missing. Nothing to do: says nothing, at once.
#
#     scripts/setup.sh [build] [demo] [test] [aarch64] [numa] [bench]       default: build
#
# build needs what compiles memlens and DynamoRIO; without it the script fails. What the other tasks need
# beyond that is programs to run and to compare with: where one cannot be had, the task leaves out what
# needs it, and this script only warns.
set -eu

# A tool: the words to find it by, whether the build needs it, and its packages for
#         apt-get         dnf             pacman          zypper          apk
packages() {
    case $1 in
    cc)       row='gcc|gcc|gcc|gcc|gcc musl-dev linux-headers' ;;
    c++)      row='g++|gcc-c++|gcc|gcc-c++|g++' ;;
    cmake)    row='cmake|cmake|cmake|cmake|cmake' ;;
    make)     row='make|make|make|make|make' ;;
    libclang) row='libclang-dev|clang-devel|clang|clang-devel|clang-dev' ;;
    static-libc) row='libc6-dev|glibc-static|glibc|glibc-devel-static|musl-dev' ;;
    valgrind) row='valgrind|valgrind valgrind-devel|valgrind|valgrind valgrind-devel|valgrind valgrind-dev' ;;
    python3)  row='python3|python3|python|python3|python3' ;;
    gfortran) row='gfortran|gcc-gfortran|gcc-fortran|gcc-fortran|gfortran' ;;
    sqlite3)  row='sqlite3|sqlite|sqlite|sqlite3|sqlite' ;;
    heaptrack) row='heaptrack|heaptrack|heaptrack|heaptrack|heaptrack' ;;
    perf)     row='linux-perf|perf|perf|perf|perf' ;;
    node)     row='nodejs|nodejs|nodejs|nodejs|nodejs' ;;
    redis-cli) row='redis-tools|redis|redis|redis|redis' ;;
    xz)       row='xz-utils|xz|xz|xz|xz' ;;
    zstd)     row='zstd|zstd|zstd|zstd|zstd' ;;
    lua5.4)   row='lua5.4|lua|lua|lua54|lua5.4' ;;
    bc)       row='bc|bc|bc|bc|bc' ;;
    file)     row='file|file|file|file|file' ;;
    diff)     row='diffutils|diffutils|diffutils|diffutils|diffutils' ;;
    git)      row='git|git|git|git|git' ;;
    aarch64-linux-gnu-gcc) row='gcc-aarch64-linux-gnu|gcc-aarch64-linux-gnu|aarch64-linux-gnu-gcc|cross-aarch64-gcc14|' ;;
    qemu-system-aarch64) row='qemu-system-arm|qemu-system-aarch64|qemu-system-aarch64|qemu-arm|qemu-system-aarch64' ;;
    qemu-system-x86_64) row='qemu-system-x86|qemu-system-x86|qemu-system-x86|qemu-x86|qemu-system-x86_64' ;;
    openssl)  row='openssl|openssl|openssl|openssl|openssl' ;;
    perl)     row='perl|perl|perl|perl|perl' ;;
    esac
    echo "$row" | cut -d'|' -f"$2"
}

present() {
    case $1 in
    libclang)
        # Its C interface: libclang-cpp is another library and comes without it.
        for library in /usr/lib/llvm*/lib/libclang*.so* /usr/lib*/libclang*.so* /usr/lib/*/libclang*.so* \
            "${LIBCLANG_PATH:-/nonexistent}"/libclang*.so*; do
            case ${library##*/} in libclang-cpp*) continue ;; esac
            [ -e "$library" ] && return 0
        done
        return 1 ;;
    static-libc)
        [ -e "$(cc -print-file-name=libc.a 2>/dev/null)" ] ;;
    lua5.4)
        command -v lua5.4 >/dev/null 2>&1 || command -v lua >/dev/null 2>&1 ;;
    *)
        command -v "$1" >/dev/null 2>&1 ;;
    esac
}

# perl: DynamoRIO's CMake files ask for it.
required='cc c++ cmake make perl libclang'
optional=''
[ $# -gt 0 ] || set -- build
for task; do
    case $task in
    build) ;;
    demo) ;;
    test) optional="$optional static-libc valgrind python3 gfortran sqlite3 redis-cli node xz zstd lua5.4 bc file diff git openssl" ;;
    aarch64) optional="$optional aarch64-linux-gnu-gcc qemu-system-aarch64 python3" ;;
    numa) optional="$optional qemu-system-x86_64 python3" ;;
    bench) optional="$optional valgrind python3 sqlite3 xz perf heaptrack redis-cli" ;;
    *) echo "setup.sh: unknown task: $task (build, demo, test, aarch64, numa, bench)" >&2; exit 2 ;;
    esac
done

if ! command -v cargo >/dev/null 2>&1; then
    echo "setup.sh: there is no cargo. Install Rust with rustup (https://rustup.rs):" >&2
    echo "    curl --proto '=https' --tlsv1.2 -sSf https://sh.rustup.rs | sh" >&2
    exit 1
fi

missing_of() {
    for tool; do
        present "$tool" || printf '%s ' "$tool"
    done
}

missing_required=$(missing_of $required)
missing_optional=$(missing_of $optional)
missing="$missing_required$missing_optional"
[ -n "$missing" ] || exit 0

column=0
for manager in apt-get dnf pacman zypper apk; do
    column=$((column + 1))
    command -v "$manager" >/dev/null 2>&1 && break
    manager=
done

give_up() {
    echo "setup.sh: $1" >&2
    if [ -n "$missing_required" ]; then
        echo "setup.sh: memlens cannot be built without: $missing_required" >&2
        exit 1
    fi
    echo "setup.sh: going on without: $missing_optional" >&2
    exit 0
}

[ -n "$manager" ] || give_up "no package manager that this script knows (apt-get, dnf, pacman, zypper, apk); please install by hand what provides: $missing"

wanted=''
for tool in $missing; do
    wanted="$wanted $(packages "$tool" $column)"
done

as_root=''
if [ "$(id -u)" -ne 0 ]; then
    command -v sudo >/dev/null 2>&1 || give_up "not root, and there is no sudo; as root, please install:$wanted"
    as_root=sudo
fi

install_packages() {
    case $manager in
    apt-get) $as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends "$@" ;;
    dnf) $as_root dnf install -y "$@" ;;
    pacman) $as_root pacman -S --needed --noconfirm "$@" ;;
    zypper) $as_root zypper --non-interactive install --no-recommends "$@" ;;
    apk) $as_root apk add "$@" ;;
    esac
}

echo "setup.sh: installing with $manager:$wanted" >&2
case $manager in
apt-get) $as_root apt-get update -q >&2 || echo "setup.sh: apt-get update failed; trying with what is known" >&2 ;;
pacman) $as_root pacman -Sy --noconfirm >&2 || true ;;
esac
# All at once, and where one of them does not exist here, one by one.
if ! install_packages $wanted >&2; then
    for package in $wanted; do
        install_packages "$package" >&2 || echo "setup.sh: could not install $package" >&2
    done
fi

missing_required=$(missing_of $required)
missing_optional=$(missing_of $optional)
[ -z "$missing_required$missing_optional" ] || give_up "not everything could be installed"
