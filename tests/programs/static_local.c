/* Two functions with a static local variable of the same name: two objects, told apart by where they
 * are declared.
 *
 * first() is called 30 times, second() 70 times; each call loads and stores its "calls" by the addition,
 * and loads it once more for the result: 60 loads and 30 stores, 140 loads and 70 stores.
 *
 * expect global first::calls: loads=60 stores=30
 * expect global second::calls: loads=140 stores=70
 * prints: 100
 */
#include <stdio.h>

__attribute__((noinline)) static int first(void)
{
    static volatile int calls;
    calls += 1;
    return calls;
}

__attribute__((noinline)) static int second(void)
{
    static volatile int calls;
    calls += 1;
    return calls;
}

int main(void)
{
    int result = 0;
    for (int i = 0; i < 30; i++)
        result = first();
    int other = 0;
    for (int i = 0; i < 70; i++)
        other = second();
    printf("%d\n", result + other);
    return 0;
}
