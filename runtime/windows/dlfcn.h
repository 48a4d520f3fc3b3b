/* dlfcn.h - shared libraries by the names that they have on Linux: libcuda.so.1 is nvcuda.dll. */
#ifndef FL_WINDOWS_DLFCN_H
#define FL_WINDOWS_DLFCN_H

enum { RTLD_NOW = 2, RTLD_LOCAL = 0 };

void *dlopen(const char *name, int mode);
void *dlsym(void *library, const char *name);
int dlclose(void *library);
const char *dlerror(void);

#endif
