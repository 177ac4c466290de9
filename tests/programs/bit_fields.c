/* Bit-fields: each belongs to the bytes that its bits are in; those that share a byte are one field.
 *
 * 1,000 structures: d (bytes 2 and 3) is stored twice and loaded once, c (byte 1) is stored once and loaded twice.
 * Nobody touches a and b, which share byte 0.
 *
 * field global bits a|b: offset=0 bytes=1 loads=0 stores=0
 * field global bits c: offset=1 bytes=1 loads=2000 stores=1000
 * field global bits d: offset=2 bytes=2 loads=1000 stores=2000
 * field global bits e: offset=8 bytes=5 loads=0 stores=0
 * field global bits f: offset=13 bytes=3 loads=0 stores=0
 * prints: 749932
 */
#include <stdio.h>

static struct bits {
    unsigned a : 3, b : 5, c : 8, d : 16;
    unsigned long e : 40, f : 24;
} bits[1000];

/* Keeps the compiler from joining accesses. */
#define SEEN() __asm__ volatile("" ::: "memory")

int main(void)
{
    unsigned sum = 0;
    for (int round = 0; round < 2; round++)
        for (int i = 0; i < 1000; i++) {
            bits[i].d = (unsigned)(i + round);
            SEEN();
        }
    for (int i = 0; i < 1000; i++) {
        bits[i].c = (unsigned)i;
        SEEN();
    }
    for (int round = 0; round < 2; round++)
        for (int i = 0; i < 1000; i++) {
            sum += bits[i].c;
            SEEN();
        }
    for (int i = 0; i < 1000; i++) {
        sum += bits[i].d;
        SEEN();
    }
    printf("%u\n", sum);
    return 0;
}
