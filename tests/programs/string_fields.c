/* Fields that string instructions go through: each element is an access of the field where it lies.
 *
 * 500 records of 24 words. Each is cleared from its second word on by `rep stosq`, 3 times: body's 20 words 1,500 stores each, tail
 * and last 1,500, middle 1,500; head is stored by itself 3 times each. Then each is copied to another array by `rep movsq`, word by
 * word: every word is loaded and stored once more. Half of the copies go backwards.
 *
 * field heap records head: offset=0 bytes=8 loads=500 stores=1500
 * field heap records body[]: offset=8 bytes=160 loads=10000 stores=30000
 * field heap records middle: offset=168 bytes=8 loads=500 stores=1500
 * field heap records tail: offset=176 bytes=8 loads=500 stores=1500
 * field heap records last: offset=184 bytes=8 loads=500 stores=1500
 * field heap copies head: offset=0 bytes=8 loads=0 stores=500
 * field heap copies body[]: offset=8 bytes=160 loads=0 stores=10000
 * field heap copies last: offset=184 bytes=8 loads=0 stores=500
 * prints: 500
 */
#include <stdio.h>
#include <stdlib.h>

enum { RECORDS = 500, WORDS = 24 };

struct record {
    volatile long head;
    long body[20];
    long middle, tail, last;
};

__attribute__((noinline)) static void clear(struct record *record)
{
    void *to = record->body;
    long words = WORDS - 1;
    __asm__ volatile("rep stosq" : "+D"(to), "+c"(words) : "a"(0L) : "memory");
    record->head = 1;
}

__attribute__((noinline)) static void copy(struct record *to, const struct record *from)
{
    long words = WORDS;
    __asm__ volatile("rep movsq" : "+D"(to), "+S"(from), "+c"(words) : : "memory");
}

__attribute__((noinline)) static void copy_backwards(struct record *to, const struct record *from)
{
    long words = WORDS;
    long *last_to = (long *)to + WORDS - 1;
    const long *last_from = (const long *)from + WORDS - 1;
    __asm__ volatile("std\n\trep movsq\n\tcld" : "+D"(last_to), "+S"(last_from), "+c"(words) : : "memory");
}

int main(void)
{
    struct record *records = malloc(RECORDS * sizeof *records);
    struct record *copies = malloc(RECORDS * sizeof *copies);
    for (int round = 0; round < 3; round++)
        for (int i = 0; i < RECORDS; i++)
            clear(&records[i]);
    for (int i = 0; i < RECORDS; i += 2) {
        copy(&copies[i], &records[i]);
        copy_backwards(&copies[i + 1], &records[i + 1]);
    }
    printf("%d\n", RECORDS);
    return 0;
}
