"""Takes from a process, through the kernel and for good, what a decoder of strangers' files cannot need.

Only Linux can do this: Landlock (kernel 5.13 or later), seccomp and `prctl`. They need no privilege. Landlock
says which files may be opened, seccomp which system calls may be made at all. The filter is written here, by
ctypes: the bindings of libseccomp need a library of the system, and one filter that permits some 40 calls is
short. Any other call fails with EPERM instead of killing the process: libraries go on without some.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import struct
import sys
from collections.abc import Iterable
from pathlib import Path

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446  # the same on all processors
_VERSION_FLAG, _PATH_BENEATH = 1, 1
_EXECUTE, _READ_FILE, _READ_FOLDER = 1 << 0, 1 << 2, 1 << 3
_KINDS_OF_ACCESS = {1: 13, 2: 14, 3: 15, 4: 15}  # to files, by the kernel's version; 16 from version 5 on
_NETWORK, _SCOPES = 0b11, 0b11  # bind and connect; abstract sockets and signals
_NO_NEW_PRIVILEGES, _SET_DUMPABLE = 38, 4

CALLS = """
    read 0 63, pread64 17 67, readv 19 65, write 1 64, writev 20 66, close 3 57, lseek 8 62,
    fstat 5 80, newfstatat 262 79, statx 332 291, getdents64 217 61, getcwd 79 17,
    brk 12 214, mmap 9 222, mprotect 10 226, munmap 11 215, mremap 25 216, madvise 28 233, membarrier 324 283,
    futex 202 98, set_robust_list 273 99, rseq 334 293, sched_yield 24 124, sched_getaffinity 204 123,
    rt_sigaction 13 134, rt_sigprocmask 14 135, rt_sigreturn 15 139, sigaltstack 131 132, setitimer 38 103,
    nanosleep 35 101, clock_nanosleep 230 115, restart_syscall 219 128, clock_gettime 228 113,
    clock_getres 229 114, gettimeofday 96 169, times 100 153, getrusage 98 165, getrandom 318 278,
    getpid 39 172, gettid 186 178, uname 63 160, exit 60 93, exit_group 231 94
"""
"""The system calls that decoding needs, each with its number on x86_64 and on aarch64."""

_PROCESSORS = {  # the kernel's number of each, the numbers of two more calls, and the column of its numbers
    "x86_64": {"number": 0xC000003E, "seccomp": 317, "openat": 257, "column": 1},
    "aarch64": {"number": 0xC00000B7, "seccomp": 277, "openat": 56, "column": 2},
}
_SET_FILTER, _ALL_THREADS, _IS_AVAILABLE = 1, 1, 2
_ALLOW, _FAIL, _KILL = 0x7FFF0000, 0x00050000 | errno.EPERM, 0x80000000
_LOAD, _IF_EQUAL, _IF_ANY_BIT, _RETURN = 0x20, 0x15, 0x45, 0x06
_AT_CALL, _AT_PROCESSOR, _AT_THIRD_ARGUMENT = 0, 4, 32
_TO_CHANGE = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC
_LIBC = ctypes.CDLL(None, use_errno=True)


def hide_memory() -> None:
    """Keep other processes of the same user from reading this process's memory and environment."""
    if sys.platform == "linux":
        _LIBC.prctl(_SET_DUMPABLE, 0, 0, 0, 0)


def weakness() -> str:
    """Say which means of confinement this system lacks; empty if it lacks none."""
    found = {"Landlock": landlock_version() > 0, "seccomp": has_seccomp()}
    missing = " and no ".join(name for name, is_there in found.items() if not is_there)
    return missing and (
        f"this system has no {missing}, so an image that takes over a decoder can do more than be decoded: "
        "run the service as a separate user, see docs/operating.md"
    )


def landlock_version() -> int:
    """Return the version of the kernel's Landlock; 0 if the kernel has none."""
    if sys.platform != "linux":
        return 0
    return max(0, int(_LIBC.syscall(_CREATE_RULESET, None, ctypes.c_size_t(0), _VERSION_FLAG)))


def has_seccomp() -> bool:
    """Return whether the kernel takes a filter of system calls that is written for this processor."""
    here = _PROCESSORS.get(platform.machine()) if sys.platform == "linux" and sys.maxsize > 2**32 else None
    asked = ctypes.byref(ctypes.c_uint32(_FAIL & 0xFFFF0000))
    return here is not None and _LIBC.syscall(here["seccomp"], _IS_AVAILABLE, 0, asked) == 0


def confine(readable: Iterable[Path]) -> None:
    """Take from this process, for good, what decoding does not need, as far as the system can do it.

    Open files stay open. OSError says that the kernel has one of the means and refuses to use it.
    """
    hide_memory()
    if version := landlock_version():
        give_up_files(readable, version)
    if has_seccomp():
        give_up_calls(may_open=version > 0)


def give_up_files(readable: Iterable[Path], version: int) -> None:
    """Give up, by Landlock, all files except some to read, TCP, and signals to other processes."""
    words = [(1 << _KINDS_OF_ACCESS.get(version, 16)) - 1]
    words += [_NETWORK] if version >= 4 else []
    words += [_SCOPES] if version >= 6 else []
    forbidden = struct.pack(f"={len(words)}Q", *words)
    rules = _call(_CREATE_RULESET, forbidden, ctypes.c_size_t(len(forbidden)), 0)
    for path in filter(Path.exists, readable):
        opened = os.open(path, os.O_PATH | os.O_CLOEXEC)
        rights = _EXECUTE | _READ_FILE | (_READ_FOLDER if path.is_dir() else 0)
        _call(_ADD_RULE, rules, _PATH_BENEATH, struct.pack("=Qi", rights, opened), 0)
        os.close(opened)
    _give_up_privileges()
    _call(_RESTRICT_SELF, rules, 0)
    os.close(rules)


def give_up_calls(*, may_open: bool) -> None:
    """Give up, by seccomp, all system calls but those of decoding; files open for reading, or not at all."""
    here = _PROCESSORS[platform.machine()]
    # A call of another kind (32 bits) has another processor; one of x32 has a number that nothing here has.
    steps = [(_LOAD, 0, 0, _AT_PROCESSOR), (_IF_EQUAL, 1, 0, here["number"]), (_RETURN, 0, 0, _KILL)]
    steps += [(_LOAD, 0, 0, _AT_CALL)]
    for call in CALLS.split(","):
        steps += [(_IF_EQUAL, 0, 1, int(call.split()[here["column"]])), (_RETURN, 0, 0, _ALLOW)]
    if may_open:  # what may be opened is Landlock's matter
        steps += [(_IF_EQUAL, 0, 3, here["openat"]), (_LOAD, 0, 0, _AT_THIRD_ARGUMENT)]
        steps += [(_IF_ANY_BIT, 1, 0, _TO_CHANGE), (_RETURN, 0, 0, _ALLOW)]
    steps += [(_RETURN, 0, 0, _FAIL)]
    code = b"".join(struct.pack("=HBBI", *step) for step in steps)
    held = ctypes.create_string_buffer(code, len(code))
    _give_up_privileges()
    _call(here["seccomp"], _SET_FILTER, _ALL_THREADS, struct.pack("@HP", len(steps), ctypes.addressof(held)))


def _give_up_privileges() -> None:
    """Make sure that no program can be started that has more rights than this one."""
    if _LIBC.prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "no_new_privs is refused")


def _call(number: int, *arguments: object) -> int:
    """Call the kernel by a number, and raise what it refuses."""
    result = int(_LIBC.syscall(number, *arguments))
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result
