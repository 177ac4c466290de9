/* Prints what memlens.h defines, for header.rs to compare with the crate's constants, then makes every
 * request once. Exit code 0: every request gave its default. */
#include "memlens.h"
#include <stdio.h>

int main(void)
{
    char region[64];
    printf("PROTOCOL %#lx\n", MEMLENS_PROTOCOL);
    printf("START_COLLECTION %#lx\n", MEMLENS_START_COLLECTION);
    printf("STOP_COLLECTION %#lx\n", MEMLENS_STOP_COLLECTION);
    printf("MARK %#lx\n", MEMLENS_MARK);
    printf("REGION_IS %#lx\n", MEMLENS_REGION_IS);
    printf("REGION_FREED %#lx\n", MEMLENS_REGION_FREED);
    printf("PROTOCOL_VERSION %#lx\n", MEMLENS_PROTOCOL_VERSION);
    memlens_start_collection();
    memlens_mark("here");
    memlens_region_is(region, sizeof region, "region");
    memlens_region_freed(region);
    memlens_stop_collection();
    return memlens_is_profiled() || memlens_request(42, MEMLENS_MARK, (unsigned long)"x", 1, 0, 0, 0) != 42;
}
