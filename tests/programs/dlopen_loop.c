/* A library loaded, used and unloaded 40 times, often to the same address.
 *
 * prints: 40
 */
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

int main(void)
{
    int good = 0;
    for (int i = 0; i < 40; i++) {
        void *library = dlopen("libm.so.6", RTLD_NOW | RTLD_LOCAL);
        if (!library) {
            fprintf(stderr, "%s\n", dlerror());
            return 1;
        }
        void *symbol = dlsym(library, "cbrt");
        double (*cube_root)(double);
        memcpy(&cube_root, &symbol, sizeof cube_root);
        good += (int)(cube_root(27.0 * i * i * i) + 0.5) == 3 * i;
        dlclose(library);
    }
    printf("%d\n", good);
    return 0;
}
