#include <dlfcn.h>
#include <string.h>
#include <windows.h>

void *dlopen(const char *name, int mode) {
    (void)mode;
    return LoadLibraryA(strcmp(name, "libcuda.so.1") ? name : "nvcuda.dll");
}

void *dlsym(void *library, const char *name) {
    void *address = NULL;
    const FARPROC found = GetProcAddress(library, name);
    memcpy(&address, &found, sizeof address); /* ISO C converts no pointer to a function */
    return address;
}

int dlclose(void *library) {
    return !FreeLibrary(library);
}

const char *dlerror(void) {
    return "nvcuda.dll cannot be loaded";
}
