/* String instructions: each element is an access.
 *
 * rep stosb, 1000 times:         1000 stores of 1 byte to "filled"
 * rep movsq, 100 times:          100 loads of 8 bytes from "source", 100 stores of 8 to "target"
 * repne scasb for byte 7:        finds it at index 499 of "scanned": 500 loads of 1 byte
 * repe cmpsb, 64 equal bytes and one that differs: 65 loads of 1 byte from each of "left", "right"
 * rep lodsw, 10 times:           10 loads of 2 bytes from "loaded"
 * rep stosd, 0 times:            nothing to "untouched"
 * Of each array all elements but one in each line of 64 bytes follow another one: 1000 bytes lie in 16 lines, 800 in 13, 500 in 8,
 * 65 in 2, 20 in 1.
 * Nothing else touches these arrays: their contents come from the file.
 *
 * expect global filled: loads=0 stores=1000 store_bytes=1000 followers=984
 * expect global source: loads=100 stores=0 load_bytes=800 followers=87
 * expect global target: loads=0 stores=100 store_bytes=800 followers=87
 * expect global scanned: loads=500 stores=0 load_bytes=500 followers=492
 * expect global left: loads=65 stores=0 load_bytes=65 followers=63
 * expect global right: loads=65 stores=0 load_bytes=65 followers=63
 * expect global loaded: loads=10 stores=0 load_bytes=20 followers=9
 * expect-absent global untouched
 * prints: 500 65
 */
#include <stdio.h>

/* Each array has pages of its own, and its first byte set, so that it lies in .data. */
#define OWN_PAGES __attribute__((aligned(4096)))
char filled[1000] OWN_PAGES = {1};
long source[100] OWN_PAGES = {1}, target[100] OWN_PAGES = {1};
char scanned[1000] OWN_PAGES = {[499] = 7};
char left[100] OWN_PAGES = {1}, right[100] OWN_PAGES = {1, [64] = 2};
short loaded[10] OWN_PAGES = {1};
int untouched[10] OWN_PAGES = {1};

int main(void)
{
    void *di, *si;
    long count;

    di = filled, count = 1000;
    __asm__ volatile("rep stosb" : "+D"(di), "+c"(count) : "a"(0) : "memory");
    di = target, si = source, count = 100;
    __asm__ volatile("rep movsq" : "+D"(di), "+S"(si), "+c"(count) : : "memory");
    di = scanned, count = 1000;
    __asm__ volatile("repne scasb" : "+D"(di), "+c"(count) : "a"(7) : "memory", "cc");
    long scanned_bytes = 1000 - count;
    di = left, si = right, count = 100;
    __asm__ volatile("repe cmpsb" : "+D"(di), "+S"(si), "+c"(count) : : "memory", "cc");
    long compared_bytes = 100 - count;
    si = loaded, count = 10;
    __asm__ volatile("rep lodsw" : "+S"(si), "+c"(count) : : "memory", "rax");
    di = untouched, count = 0;
    __asm__ volatile("rep stosl" : "+D"(di), "+c"(count) : "a"(0) : "memory");
    printf("%ld %ld\n", scanned_bytes, compared_bytes);
    return 0;
}
