/* Numbers on the command line, for the programs of this folder. */
#ifndef ARGUMENT_H
#define ARGUMENT_H

#include <stdio.h>
#include <stdlib.h>

/* The index-th argument, a decimal number from least to most, or otherwise where it is not given. A
 * wrong one ends the program with exit code 2. */
static long argument(int argc, char **argv, int index, long otherwise, long least, long most)
{
    if (index >= argc)
        return otherwise;
    char *end;
    long value = strtol(argv[index], &end, 10);
    if (*argv[index] == '\0' || *end != '\0' || value < least || value > most) {
        fprintf(stderr, "%s: argument %d, %s, is not a number from %ld to %ld\n", argv[0], index, argv[index],
                least, most);
        exit(2);
    }
    return value;
}

/* A result of malloc or calloc, or the end of the program. */
static void *must(void *block)
{
    if (!block) {
        perror("allocate");
        exit(1);
    }
    return block;
}

#endif /* ARGUMENT_H */
