/* An allocator for torch.cuda.memory.CUDAPluggableAllocator that can give its memory back and keep its addresses:
 * physical memory is created and mapped, unmapped and released, at an address that stays reserved. It counts its own
 * driver calls. Build: cc -O2 -fno-omit-frame-pointer -shared -fPIC -o pluggable.so pluggable.c -l:libcuda.so.1
 */
#include <stddef.h>
#include <stdint.h>

typedef unsigned long long Pointer;
typedef struct { int type; int id; } Location;
typedef struct {
    int type, handle_types;
    Location location;
    void *win32;
    struct { unsigned char compression, rdma; unsigned short usage; unsigned char reserved[4]; } flags;
} Properties;
typedef struct { Location location; int flags; } Access;

int cuMemCreate(Pointer *, size_t, const Properties *, unsigned long long);
int cuMemRelease(Pointer);
int cuMemAddressReserve(Pointer *, size_t, size_t, Pointer, unsigned long long);
int cuMemAddressFree(Pointer, size_t);
int cuMemMap(Pointer, size_t, size_t, Pointer, unsigned long long);
int cuMemUnmap(Pointer, size_t);
int cuMemSetAccess(Pointer, size_t, const Access *, size_t);

enum { CREATE, RELEASE, RESERVE, FREE, MAP, UNMAP, ACCESS, CALLS };
enum { BLOCKS = 4096, GRANULARITY = 2 << 20 };
static struct { Pointer address, handle; size_t size; int device, backed; } blocks[BLOCKS];
static long counts[CALLS];

long pausable_count(int call) { return counts[call]; }

/* Address (0: none), size, device and whether memory is behind it, of block i; 0 if there is no such block. */
int pausable_block(int i, unsigned long long (*out)[4]) {
    if (i < 0 || i >= BLOCKS)
        return 0;
    (*out)[0] = blocks[i].address, (*out)[1] = blocks[i].size;
    (*out)[2] = blocks[i].device, (*out)[3] = blocks[i].backed;
    return 1;
}

static int back(int i) {
    Properties properties = {.type = 1, .location = {1, blocks[i].device}};
    Access access = {{1, blocks[i].device}, 3};
    if (blocks[i].backed)
        return 0;
    counts[CREATE]++, counts[MAP]++, counts[ACCESS]++;
    int failed = cuMemCreate(&blocks[i].handle, blocks[i].size, &properties, 0)
        || cuMemMap(blocks[i].address, blocks[i].size, 0, blocks[i].handle, 0)
        || cuMemSetAccess(blocks[i].address, blocks[i].size, &access, 1);
    blocks[i].backed = !failed;
    return failed;
}

static int unback(int i) {
    if (!blocks[i].backed)
        return 0;
    blocks[i].backed = 0;
    counts[UNMAP]++, counts[RELEASE]++;
    return cuMemUnmap(blocks[i].address, blocks[i].size) || cuMemRelease(blocks[i].handle);
}

void *pausable_malloc(size_t size, int device, void *stream) {
    (void)stream;
    for (int i = 0; i < BLOCKS; i++)
        if (!blocks[i].address) {
            blocks[i].size = (size + GRANULARITY - 1) / GRANULARITY * GRANULARITY;
            blocks[i].device = device;
            counts[RESERVE]++;
            if (cuMemAddressReserve(&blocks[i].address, blocks[i].size, 0, 0, 0) || back(i))
                return NULL;
            return (void *)(uintptr_t)blocks[i].address;
        }
    return NULL;
}

void pausable_free(void *address, size_t size, int device, void *stream) {
    (void)size, (void)device, (void)stream;
    for (int i = 0; i < BLOCKS; i++)
        if (blocks[i].address == (Pointer)(uintptr_t)address) {
            unback(i);
            counts[FREE]++;
            cuMemAddressFree(blocks[i].address, blocks[i].size);
            blocks[i].address = 0;
            return;
        }
}

int pausable_pause(void) {
    for (int i = 0; i < BLOCKS; i++)
        if (blocks[i].address && unback(i))
            return 1;
    return 0;
}

/* Leaves the last blocks without memory: what a program that forgets to resume some does. */
int pausable_resume_but(int missing) {
    int wanted = -missing;
    for (int i = 0; i < BLOCKS; i++)
        wanted += blocks[i].address != 0;
    for (int i = 0; i < BLOCKS && wanted > 0; i++)
        if (blocks[i].address) {
            if (back(i))
                return 1;
            wanted--;
        }
    return 0;
}

int pausable_resume(void) { return pausable_resume_but(0); }
