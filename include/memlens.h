/* memlens.h: a C or C++ program tells memlens when to collect, where it is, and what its memory is.
 *
 * A request is five instructions that do nothing on the processor and that a profiler recognises in
 * the machine code:
 *
 *     rol rdi,3   rol rdi,13   rol rdi,61   rol rdi,51   xchg rbx,rbx
 *
 * They are those of valgrind on x86-64 (valgrind.h), so that one recogniser serves both tools;
 * valgrind ignores the codes below. The flags change, no other register does.
 *
 *     before   rax -> unsigned long [6]: code, arg 1 ... arg 5
 *              rdx  = default result
 *     after    rdx  = result: the default when nobody listens
 *
 * A code is 'M' << 24 | 'L' << 16 | number. Names are UTF-8 without a terminator; the profiler copies
 * them before the request returns.
 *
 *     number  name                      arg 1    arg 2   arg 3  arg 4       result
 *     0       MEMLENS_PROTOCOL                                              1 under memlens, else 0
 *     1       MEMLENS_START_COLLECTION                                      0
 *     2       MEMLENS_STOP_COLLECTION                                       0
 *     3       MEMLENS_MARK              name     bytes                      0
 *     4       MEMLENS_REGION_IS         address  bytes   name   name bytes  0
 *     5       MEMLENS_REGION_FREED      address                             0
 *
 * memlens also honours callgrind's requests (callgrind.h): start, stop, toggle, zero, dump.
 *
 * Cost when not profiled: about 4 ns. No system call, no lock, no allocation: allowed in signal
 * handlers and allocators. On other processors than x86-64, on other systems than Linux, and with
 * MEMLENS_DISABLE defined, every request is empty.
 *
 * Example:
 *
 *     #include <memlens.h>
 *
 *     char *arena = reserve(1 << 20);
 *     memlens_region_is(arena, 1 << 20, "token arena");
 *     memlens_mark("parsing");
 *     memlens_start_collection();
 *     parse(arena);
 *     memlens_stop_collection();
 *     memlens_region_freed(arena);
 *
 * The Rust twin is the crate memlens-requests.
 */
#ifndef MEMLENS_H
#define MEMLENS_H

#include <stddef.h>

#define MEMLENS_BASE (((unsigned long)'M' << 24) | ((unsigned long)'L' << 16))
#define MEMLENS_PROTOCOL MEMLENS_BASE
#define MEMLENS_START_COLLECTION (MEMLENS_BASE + 1)
#define MEMLENS_STOP_COLLECTION (MEMLENS_BASE + 2)
#define MEMLENS_MARK (MEMLENS_BASE + 3)
#define MEMLENS_REGION_IS (MEMLENS_BASE + 4)
#define MEMLENS_REGION_FREED (MEMLENS_BASE + 5)

/* What MEMLENS_PROTOCOL answers under a profiler that knows the requests of this version. */
#define MEMLENS_PROTOCOL_VERSION 1UL

/* Makes a request; returns dflt when nobody listens. */
static __inline__ __attribute__((__always_inline__, __unused__)) unsigned long
memlens_request(unsigned long dflt, unsigned long code, unsigned long arg1, unsigned long arg2,
                unsigned long arg3, unsigned long arg4, unsigned long arg5)
{
#if defined(__x86_64__) && defined(__linux__) && !defined(__ILP32__) && !defined(MEMLENS_DISABLE)
    volatile unsigned long args[6];
    unsigned long result = dflt;
    args[0] = code;
    args[1] = arg1;
    args[2] = arg2;
    args[3] = arg3;
    args[4] = arg4;
    args[5] = arg5;
    __asm__ volatile("rolq $3, %%rdi\n\t"
                     "rolq $13, %%rdi\n\t"
                     "rolq $61, %%rdi\n\t"
                     "rolq $51, %%rdi\n\t"
                     "xchgq %%rbx, %%rbx"
                     : "+d"(result)
                     : "a"(&args[0])
                     : "cc", "memory");
    return result;
#else
    (void)code, (void)arg1, (void)arg2, (void)arg3, (void)arg4, (void)arg5;
    return dflt;
#endif
}

/* 1 when memlens listens, in this version of the requests or a later one; else 0. */
static __inline__ __attribute__((__unused__)) int memlens_is_profiled(void)
{
    return memlens_request(0, MEMLENS_PROTOCOL, 0, 0, 0, 0, 0) >= MEMLENS_PROTOCOL_VERSION;
}

/* From here on, accesses of every thread are counted. */
static __inline__ __attribute__((__unused__)) void memlens_start_collection(void)
{
    (void)memlens_request(0, MEMLENS_START_COLLECTION, 0, 0, 0, 0, 0);
}

/* From here on, accesses of no thread are counted until collection starts again. */
static __inline__ __attribute__((__unused__)) void memlens_stop_collection(void)
{
    (void)memlens_request(0, MEMLENS_STOP_COLLECTION, 0, 0, 0, 0, 0);
}

/* Names this moment: reports say how many instructions had been executed by then. */
static __inline__ __attribute__((__unused__)) void memlens_mark(const char *name)
{
    (void)memlens_request(0, MEMLENS_MARK, (unsigned long)name, __builtin_strlen(name), 0, 0, 0);
}

/* From here on, the size_bytes bytes at start are an object called name, whatever they were before.
 * The region itself is not touched. A region given later wins where two overlap. */
static __inline__ __attribute__((__unused__)) void memlens_region_is(const volatile void *start,
                                                                     size_t size_bytes,
                                                                     const char *name)
{
    (void)memlens_request(0, MEMLENS_REGION_IS, (unsigned long)start, size_bytes, (unsigned long)name,
                          __builtin_strlen(name), 0);
}

/* The region that memlens_region_is named at start is no object any more; what lay under it shows
 * again. */
static __inline__ __attribute__((__unused__)) void memlens_region_freed(const volatile void *start)
{
    (void)memlens_request(0, MEMLENS_REGION_FREED, (unsigned long)start, 0, 0, 0, 0);
}

#endif /* MEMLENS_H */
