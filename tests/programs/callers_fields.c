/* Fields of a structure on the stack that functions get by pointer: one that its function calls itself, and one behind another call.
 *
 * near is handed to touch 1,000 times: b is loaded, c and h are loaded and stored each time. far is handed to pass 1,000 times, which hands it to
 * touch. Setting both to zero stores each part once, in whatever pieces; b is stored once more; the sums load c and h once.
 *
 * field local near a: offset=0 bytes=8 loads=0 stores=0..2
 * field local near b: offset=8 bytes=8 loads=1000 stores=1..2
 * field local near c: offset=16 bytes=8 loads=1001 stores=1000..1001
 * field local near d: offset=24 bytes=8 loads=0 stores=0..1
 * field local near h: offset=56 bytes=8 loads=1001 stores=1000..1001
 * field local far b: offset=8 bytes=8 loads=1000 stores=1..2
 * field local far c: offset=16 bytes=8 loads=1001 stores=1000..1001
 * field local far h: offset=56 bytes=8 loads=1001 stores=1000..1001
 * prints: 4000
 */
#include <stdio.h>

struct eight {
    long a, b, c, d, e, f, g, h;
};

__attribute__((noinline)) static void touch(struct eight *it)
{
    it->c += 1;
    it->h += it->b;
    __asm__ volatile("" ::: "memory");
}

__attribute__((noinline)) static void pass(struct eight *it)
{
    touch(it);
    __asm__ volatile("" ::: "memory");
}

int main(void)
{
    struct eight near = {.b = 1}, far = {.b = 1};
    for (int i = 0; i < 1000; i++) {
        touch(&near);
        pass(&far);
    }
    printf("%ld\n", near.c + near.h + far.c + far.h);
    return 0;
}
